"""Fixtures for the tests on real Redis servers: clients by URL, a manual clock, and a plain client."""

from tests.support.redis_fixtures import client, clock, open_url

__all__ = ["client", "clock", "open_url"]
