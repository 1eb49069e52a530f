"""The exceptions of redis-py, without loading it: its import takes longer than all else that a first call does.

While redis-py is not loaded, no exception can be one of its own. Then its names stand for a class that no exception
has. `make` loads redis-py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Each of them, under its own name.
    from redis.exceptions import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]
else:

    def __getattr__(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(sys.modules.get("redis.exceptions"), name, _NotLoadedError)


class _NotLoadedError(Exception):
    """Is never raised."""


def make(name: str, text: str) -> Any:
    """An exception of redis-py, for something that was noticed without it."""
    from redis import exceptions

    return getattr(exceptions, name)(text)
