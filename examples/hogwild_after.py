"""The script `hogwild_before.py` moved to wasp_local: the same model, data and loop.

    diff examples/hogwild_before.py examples/hogwild_after.py
    python examples/hogwild_after.py

The one thing to know: an epoch is dealt out among the workers here, each batch to one of them, where in the script
before every process goes through all of it; so this one makes as many passes in all, by one number.
"""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import wasp_local as wl
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


def train(worker, dataset):
    for inputs, targets in worker.batches(dataset, batch_size=64, epochs=EPOCHS * PROCESSES):
        loss = cross_entropy(worker.model(inputs), targets)
        worker.step(loss)


def accuracy(model, dataset):
    inputs, targets = dataset.tensors
    with torch.no_grad():
        return (model(inputs).argmax(1) == targets).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    loaded = load("digits")
    dataset = digits(loaded.train)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.5)
    wl.launch(lambda worker: train(worker, dataset), model=model, optimizer=optimizer, workers=PROCESSES)
    print(f"accuracy {accuracy(model, digits(loaded.test)):.1%}")
