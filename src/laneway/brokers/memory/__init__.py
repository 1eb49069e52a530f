"""The broker that keeps its jobs in memory."""

from __future__ import annotations

from .broker import MemoryBroker

__all__ = ["MemoryBroker"]
