"""Fixtures for the tests that run a worker: apps on every broker that needs no server."""

from tests.support.worker_fixtures import app, drain_fixture, make_app, url

__all__ = ["app", "drain_fixture", "make_app", "url"]
