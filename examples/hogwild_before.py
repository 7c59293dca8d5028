"""A script after PyTorch's Hogwild example: processes that train one model in shared memory, without locks.

    python examples/hogwild_before.py

The one thing to know: `hogwild_after.py` is this script moved to wasp_local; compare them with `diff`. Nothing
here but the digits comes from wasp_local.
"""

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from wasp_local.data.datasets import PIXELS, load

PROCESSES = 2
EPOCHS = 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 10, kernel_size=5), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(10, 20, kernel_size=5), nn.MaxPool2d(2), nn.ReLU(),
        )  # fmt: skip
        self.classify = nn.Sequential(nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10))

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


def digits(part):
    images = (part.inputs / 255 - PIXELS.mean) / PIXELS.std
    return TensorDataset(images, part.targets)


def train(rank, model, dataset):
    torch.manual_seed(rank)
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()


def accuracy(model, dataset):
    inputs, targets = dataset.tensors
    with torch.no_grad():
        return (model(inputs).argmax(1) == targets).float().mean().item()


if __name__ == "__main__":
    mp.set_start_method("spawn")
    torch.manual_seed(0)
    loaded = load("digits")
    dataset = digits(loaded.train)
    model = Net()
    model.share_memory()
    processes = [mp.Process(target=train, args=(rank, model, dataset)) for rank in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print(f"accuracy {accuracy(model, digits(loaded.test)):.1%}")
