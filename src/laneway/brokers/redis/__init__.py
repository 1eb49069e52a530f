"""The Redis broker: one Redis or Valkey server, or a Cluster of them.

URLs can be read (`urls`) without redis-py, which is only loaded with the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import RedisBroker

__all__ = ["RedisBroker"]


def __getattr__(name: str) -> Any:
    if name != "RedisBroker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .broker import RedisBroker

    return RedisBroker
