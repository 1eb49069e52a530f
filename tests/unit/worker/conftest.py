"""Fixtures for the unit tests of the worker: apps on every broker that needs no server."""

from tests.support.worker_fixtures import make_app, url

__all__ = ["make_app", "url"]
