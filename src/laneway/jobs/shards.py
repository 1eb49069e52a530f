"""Maps a key to its shard: a pure function that must never change."""

from __future__ import annotations

from zlib import crc32

DEFAULT_SHARDS = 5
#: More would be slow to look through and serve nobody.
MAX_SHARDS = 1_000


def shard_of(key: str, shards: int) -> int:
    """Return the shard of `key` in a queue of `shards` shards."""
    return crc32(key.encode()) % shards
