"""A model and a loss of your own, defined right here, and a callback that ends the run early.

    python examples/own_model.py

The one thing to know: everything that workers need travels to them as it is, lambdas and classes of this script
too. `model` is yours again when `fit` returns, with the trained weights in it.
"""

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

import wasp_local as wl


class Waves(nn.Module):
    """Learns a function of one number from features of several frequencies."""

    def __init__(self):
        super().__init__()
        self.frequencies = nn.Parameter(torch.linspace(1.0, 4.0, 16))
        self.mix = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        angles = x * self.frequencies
        return self.mix(torch.cat([angles.sin(), angles.cos()], dim=1))


def points(count, seed):
    x = torch.rand(count, 1, generator=torch.Generator().manual_seed(seed)) * 6 - 3
    return TensorDataset(x, torch.sin(2 * x) + 0.3 * x)


def stop_when_good(moment):
    print(f"after {moment.samples:,} samples: test loss {moment.evaluation.loss:.4f}")
    if moment.evaluation.loss < 0.001:
        moment.stop("the test loss is below 0.001")


torch.manual_seed(0)
model = Waves()
result = wl.Trainer(
    model,
    optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.001),
    loss=lambda output, target: mse_loss(output, target),
    workers=2,
    protocol=wl.wasp(sync_every=64),
    batch_size=32,
    epochs=30,
    callbacks=[stop_when_good],
    quiet=True,
).fit(points(4096, seed=1), points(512, seed=2))

print(f"ended because {result.stopped}, at loss {result.test_loss:.4f}")
learned, right = model(torch.tensor([[1.0]])).item(), torch.sin(torch.tensor(2.0)).item() + 0.3
print(f"f(1) = {learned:.3f}, and {right:.3f} is right")
