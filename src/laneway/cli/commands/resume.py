"""`laneway resume`: the command is in `pause`. This file exists because a command is found by its file name."""

from __future__ import annotations

from .pause import resume

__all__ = ["resume"]
