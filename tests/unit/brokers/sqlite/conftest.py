"""Fixtures for the tests of the SQLite broker: a new file and a broker on it."""

from tests.support.sqlite_fixtures import broker, path

__all__ = ["broker", "path"]
