"""The worker: a process that runs jobs."""

from .process import Worker

__all__ = ["Worker"]
