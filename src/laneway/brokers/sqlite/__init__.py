"""The SQLite broker: one file, any number of processes on one machine, nothing to install."""

from .broker import SQLiteBroker

__all__ = ["SQLiteBroker"]
