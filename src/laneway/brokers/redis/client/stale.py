"""How a script says that whoever called it has an outdated idea of a queue."""

from __future__ import annotations

from typing import Any


class Stale(Exception):
    """A shard was not open, or a key on its way to another one: the layout that was gone by is outdated, or will be."""


def fresh(answer: list[Any]) -> list[Any]:
    """An answer, unless it is that one."""
    if answer and answer[0] == b"stale":
        raise Stale
    return answer
