"""The ``recsys-cg`` command. Nothing heavy is imported until a command needs it."""

from __future__ import annotations

from recsys_cg.cli.main import app, main

__all__ = ["app", "main"]
