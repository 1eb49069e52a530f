"""How one payload is found, by its identity, among very many of a key.

Values are stored by score and bytes, and no index leads from an identity to its value: that would cost every one of
them. A script finds it among a few. If there are more it says so, and they are looked through from here, page by page,
so that nobody else waits for long.
"""

from __future__ import annotations

import struct
from typing import Any

from .client.calling import Caller
from .client.stale import fresh
from .layout import Layouts
from .script import load

#: How many are looked at in one step: at first, when nobody knows how large they are, and at most. And how much.
FEW, MANY, CHARS = 16, 1_000, 4_000_000


def ask(layouts: Layouts, script: str, tag: str, *, identity: str | None, **args: object) -> list[Any]:
    """What a script says about one payload of a job in one shard, or with None about the job."""
    found: list[bytes] = []
    packed = layouts.args(identity=identity, **args)
    while True:
        answer: list[Any] = fresh(layouts.server.run(load(script), [tag], [packed, *found]))
        if answer[0] != b"search" or identity is None:
            return answer
        found += [answer[1], _search(layouts.server, answer[1], identity.encode())]


def _search(server: Caller, name: bytes, identity: bytes) -> bytes:
    """The member of a sorted set that is the value with an identity; empty if there is none."""
    ending = b"\0" + identity + struct.pack(">H", len(identity))
    cursor, count = b"0", FEW
    while True:
        cursor, seen, chars, member = server.run(load("search"), [name], [cursor, count, ending])
        if member or cursor == b"0":
            return bytes(member)
        count = max(1, min(MANY, CHARS * seen // max(chars, 1)))
