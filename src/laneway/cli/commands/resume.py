"""`laneway resume`: the other half of `laneway pause`."""

from __future__ import annotations

from .pause import resume

__all__ = ["resume"]
