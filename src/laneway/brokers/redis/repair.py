"""What may be unwell with what is stored, and how it is mended. Nothing that was stored is thrown away.

Everything is looked through, shard by shard and page by page, and then all names of keys for payloads that nothing
leads to: that takes a while where there are many jobs, and keeps nobody from working meanwhile. Of a queue that is
being resharded only the claims are looked at: its jobs are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...jobs.shards import shard_of
from . import reshard, transfer
from .client.stale import fresh
from .layout import Layout, Layouts, Stale
from .script import load
from .surveying import Survey, survey, survey_claims
from .wakeup import bells_for

#: Keys that are mended in one step, and names that are looked through in one.
_PAGE, _NAMES = 500, 5_000
_FOUND = "Its job was gone; it was found by laneway check --repair."

_T = TypeVar("_T")
#: Gives back the claims of workers. Returns how many those were.
GiveBack = Callable[[Sequence[str]], int]


@dataclass
class Findings:
    """What was found in all queues."""

    surveys: list[tuple[Layout, Survey]] = field(default_factory=list)
    #: Claims, by their worker: of those that are dead, and of those that nobody knows.
    dead: dict[str, int] = field(default_factory=dict)
    nobodys: dict[str, int] = field(default_factory=dict)
    #: By tag: keys in a shard that is not theirs, and keys with payloads (queued, dead) that nothing leads to.
    astray: dict[str, list[str]] = field(default_factory=dict)
    orphans: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    orphan_count: int = 0

    def count(self, of: Callable[[Survey], int]) -> int:
        return sum(of(each) for _, each in self.surveys)


def check(layouts: Layouts) -> list[str]:
    """What is unwell, a sentence each."""
    queues = layouts.read_all()
    problems = [
        f"The queue {layout.queue} is being resharded from {layout.shards} to {layout.record.resharding} "
        f"({layout.record.moved} of {max(layout.record.to_move, 0)} jobs have moved), and nothing is claimed "
        f"meanwhile; a worker goes on with it, or laneway reshard {layout.queue} {layout.record.resharding}."
        for layout in queues
        if layout.record.resharding
    ]
    found = _look(layouts, queues)
    if found.dead:
        problems.append("There are claims of workers that are dead; start a worker, and it takes them over.")
    counted = [
        (sum(1 for layout in queues if layout.record.closing), "Queues whose former shards are not closed"),
        (sum(found.nobodys.values()), "Jobs claimed by a worker that does not exist"),
        (found.count(lambda each: len(each.unlisted)), "Claims that are not in the list of their worker"),
        (sum(map(len, found.astray.values())), "Jobs in the wrong shard, where no worker looks"),
        (found.count(lambda each: each.leaving), "Jobs on their way to their shard that have not arrived"),
        (found.count(lambda each: len(each.jobs) + len(each.graves)), "Jobs that are not in all their indices"),
        (found.count(lambda each: len(each.strays)), "Entries of indices without such a job"),
        (found.count(lambda each: len(each.hollow) + len(each.hollow_graves)), "Jobs without any payload"),
        (found.orphan_count, "Payloads without a job"),
    ]
    problems += [f"{what}: {number}; mend it with laneway check --repair." for number, what in counted if number]
    return problems


def repair(layouts: Layouts, give_back: GiveBack) -> list[str]:
    """Mend what can be mended. Returns what was done, a sentence each."""
    queues = layouts.read_all()
    closed = sum(reshard.close(layouts, layout) for layout in queues if layout.record.closing)
    found = _look(layouts, queues)
    for layout, each in found.surveys:
        with suppress(Stale):  # it is being resharded since
            _mend(layouts, layout, each)
    # After the lists of workers, by which claims are given back.
    given_back = give_back([*found.dead, *found.nobodys]) if found.dead or found.nobodys else 0
    arrived = moved = 0
    for layout, each in found.surveys:
        with suppress(Stale):
            if each.leaving:
                arrived += transfer.carry(layouts, each.tag, _home(layout), leaving_only=True, mends=True)
            for keys in _pages(found.astray.get(each.tag, [])):
                moved += transfer.carry(layouts, each.tag, _home(layout), only=keys, mends=True)
    saved = sum(_see_orphans(layouts, tag, keys, mend=True) for tag, keys in found.orphans.items())
    done = [
        (closed, "Queues whose former shards are closed now"),
        (found.count(lambda each: len(each.unlisted)), "Claims put into the list of their worker"),
        (found.count(lambda each: len(each.strays)), "Entries of indices removed that had no such job"),
        (found.count(lambda each: len(each.jobs) + len(each.graves)), "Jobs put into all their indices"),
        (found.count(lambda each: len(each.hollow) + len(each.hollow_graves)), "Jobs without any payload removed"),
        (given_back, "Claims of nobody's given back"),
        (arrived, "Jobs that were on their way brought to their shard"),
        (moved, "Jobs moved to the shard that they belong to"),
        (saved, "Payloads without a job put into the morgue"),
    ]
    return [f"{what}: {number}." for number, what in done if number]


# -- looking -------------------------------------------------------------------------------------------


def _look(layouts: Layouts, queues: Sequence[Layout]) -> Findings:
    found = Findings()
    for layout in queues:
        try:
            looks = [(survey_claims if layout.record.resharding else survey)(layouts, tag) for tag in layout.tags]
        except Stale:  # it is being resharded since, or has never been used
            continue
        for each in looks:
            found.surveys.append((layout, each))
            shard = layout.shard(each.tag)
            astray = [key for key in each.keys if shard_of(key, layout.shards) != shard]
            if astray:
                found.astray[each.tag] = astray
    _sort_claims(layouts, found)
    _find_orphans(layouts, [layout for layout in queues if not layout.record.resharding], found)
    return found


def _sort_claims(layouts: Layouts, found: Findings) -> None:
    """Whose claims are of workers that do not live? Asked twice, because a worker may have left in between."""
    living, dead = _workers(layouts)
    for _, each in found.surveys:
        suspicious = {claim for claim in each.claims if claim[0] not in living}
        if not suspicious:
            continue
        with suppress(Stale):
            suspicious &= survey_claims(layouts, each.tag).claims
        for worker, _, _ in suspicious:
            whose = found.dead if worker in dead else found.nobodys
            whose[worker] = whose.get(worker, 0) + 1


def _workers(layouts: Layouts) -> tuple[set[str], set[str]]:
    keys = layouts.keys
    living, dead = layouts.server.do_all([("HKEYS", keys.leases), ("ZRANGE", keys.dead, 0, -1)])
    return {name.decode() for name in living}, {name.decode() for name in dead}


def _find_orphans(layouts: Layouts, queues: Sequence[Layout], found: Findings) -> None:
    tags = {tag for layout in queues for tag in layout.tags}
    for tag, queued, dead in _spilled(layouts, tags):
        with suppress(Stale):
            if count := _see_orphans(layouts, tag, (queued, dead)):
                found.orphan_count += count
                known = found.orphans.setdefault(tag, ([], []))
                known[0].extend(queued)
                known[1].extend(dead)


def _spilled(layouts: Layouts, tags: set[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Keys that have payloads besides their records, by shard, some at a time: from the names of Redis' keys."""
    for server in layouts.server.servers():
        cursor = b"0"
        while True:
            pattern = "{" + _literally(layouts.keys.prefix) + ":*:*p:*"
            cursor, names = server.do("SCAN", cursor, "MATCH", pattern, "COUNT", _NAMES)
            keys: dict[str, tuple[list[str], list[str]]] = {}
            for name in names:
                tag, _, rest = name.decode().partition("}")
                place, _, key = rest[1:].partition(":")
                if tag + "}" in tags and place in ("p", "dp"):
                    keys.setdefault(tag + "}", ([], []))[place == "dp"].append(key)
            for tag, (queued, dead) in keys.items():
                yield tag, queued, dead
            if cursor == b"0":
                break


def _literally(text: str) -> str:
    return "".join("\\" + char if char in "*?[]\\^" else char for char in text)


def _see_orphans(layouts: Layouts, tag: str, keys: tuple[list[str], list[str]], *, mend: bool = False) -> int:
    count: int = layouts.ask("orphans", tag, queued=keys[0], buried=keys[1], mend=mend, error=_FOUND)[1]
    return count


def _pages(things: list[_T]) -> list[list[_T]]:
    return [things[first : first + _PAGE] for first in range(0, len(things), _PAGE)]


# -- mending -------------------------------------------------------------------------------------------


def _home(layout: Layout) -> Callable[[str], str]:
    return lambda key: layout.tags[shard_of(key, layout.shards)]


def _mend(layouts: Layouts, layout: Layout, found: Survey) -> None:
    bells = bells_for(layouts, layout.queue)
    todo: list[tuple[str, Any]] = [
        *(("stray", each) for each in found.strays),
        *(("unlisted", key) for key in found.unlisted),
        *(("jobs", key) for key in found.jobs | found.hollow),
        *(("graves", key) for key in found.graves | found.hollow_graves),
    ]
    for page in _pages(todo):
        named = {kind: [each for what, each in page if what == kind] for kind in ("jobs", "graves", "unlisted")}
        strays = [part for what, each in page if what == "stray" for part in each]
        answer = layouts.server.run(load("repair"), [found.tag], [layouts.args(bells=bells, **named), *strays])
        fresh(answer)
