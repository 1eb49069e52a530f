"""The Redis broker: one Redis or Valkey server, or a Cluster of them."""

from .broker import RedisBroker

__all__ = ["RedisBroker"]
