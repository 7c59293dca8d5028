"""The shortest way in: LeNet-5 on the digits of the package, one worker on each core.

    python examples/quickstart.py

The one thing to know: there is no `if __name__ == "__main__":`, because none is needed.
"""

import torch

from wasp_local import Trainer
from wasp_local.data.datasets import load
from wasp_local.models import lenet5

digits = load("digits")
model = lenet5()
trainer = Trainer(
    model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5),
    batch_size=64,
)
result = trainer.fit(digits.train, digits.test)
print(result)
