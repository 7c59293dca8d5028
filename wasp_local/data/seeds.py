"""Random streams of a run: one seed a batch, so that a draw doesn't depend on which worker had the batch."""

from __future__ import annotations

__all__ = ["batch_seed"]

_MASK = 2**64 - 1


def batch_seed(seed: int, batch: int) -> int:
    """Mix a run's seed and a batch's number to a seed for that batch alone, 0 .. 2**63 - 1 (splitmix64)."""
    mixed = (seed * 0x9E3779B97F4A7C15 + (batch + 1) * 0xD1B54A32D192ED03) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) >> 1
