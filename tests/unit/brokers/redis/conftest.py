"""Fixture for the unit tests of the Redis broker: clients by URL."""

from tests.support.redis_fixtures import open_url

__all__ = ["open_url"]
