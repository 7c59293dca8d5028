"""The command `wasp-local`: what it does is in `commands`, its flags are made in `flags`."""

from __future__ import annotations

from wasp_local.cli.commands import main

__all__ = ["main"]
