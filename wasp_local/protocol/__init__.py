"""Decisions: the rules that make up a protocol, the protocols by name, and a worker's loop. Pure Python."""

from __future__ import annotations

from wasp_local.protocol.presets import PRESETS
from wasp_local.protocol.rules import Protocol
from wasp_local.protocol.weights import WEIGHTS, parse_weight

__all__ = ["PRESETS", "WEIGHTS", "Protocol", "parse_weight"]
