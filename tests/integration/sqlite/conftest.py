"""Fixtures for SQLite with several processes: a new file, a broker on it, and scripts in other processes."""

from tests.support.sqlite_fixtures import broker, path, spawn

__all__ = ["broker", "path", "spawn"]
