"""Checks the servers' settings and the stored data, and repairs the data.

`problems` only reads a server's settings. It uses INFO, which managed services allow. CONFIG, which many forbid, is
asked only for settings that INFO lacks.

`check` and `repair` read every queue in pages, by Redis' cursors, then all key names, to find payloads without a
job. That takes a while if there are many jobs, but blocks no worker. A finding holds for the moment of its page. Of
a queue that is being resharded only the claims are checked, because its entries are moving. A repair discards no
payload: a payload without a job goes to the morgue.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...broker import AutoCreateNote, Duty, Finding
from ...errors import BrokerAwayError, BrokerError, BrokerRefusedError
from ...jobs.shards import shard_of
from ..shared import CLAIMS_OF_THE_DEAD, being_resharded, mendable
from .client.errors import StaleLayoutError, ensure_current
from .client.server import RedisClient, Server
from .layout import Layout, Layouts
from .script import load

if TYPE_CHECKING:
    from ...app import Laneway

#: The oldest Redis that has every command Laneway uses. Every Valkey has them all.
OLDEST = (6, 2)
#: The part of maxmemory above which the check reports a problem.
NEARLY_FULL = 0.9


def problems(caller: RedisClient) -> list[Finding]:
    """The problems of all servers."""
    found: list[Finding] = []
    for server in caller.servers():
        try:
            found += _of_server(server, caller.is_cluster, is_replica=False)
        except BrokerError as error:
            if not caller.is_cluster:
                raise
            found.append(_unanswered(server, error))
    for server in caller.replicas():
        try:
            found += _of_server(server, caller.is_cluster, is_replica=True)
        except BrokerError as error:
            found.append(_unanswered(server, error))
    return found


def _unanswered(server: Server, error: BrokerError) -> Finding:
    return _problem("away" if isinstance(error, BrokerAwayError) else "refused", server.place, str(error))


def _of_server(server: Server, in_cluster: bool, is_replica: bool) -> Iterator[Finding]:
    info = _pairs(server.do("INFO"))
    place = server.place
    version = info.get("redis_version", "")
    if "valkey_version" not in info and (numbers := _numbers(version)) and numbers < OLDEST:
        yield _problem("old-version", place, f"{place} is Redis {version}; Laneway needs 6.2 or newer, or any Valkey.")
    if info.get("role") == "slave" and not is_replica:
        yield _problem(
            "replica", place, f"{place} is a replica, which cannot be written to; give the URL of the primary."
        )
    if info.get("cluster_enabled") == "1" and not in_cluster:
        yield _problem("cluster-node", place, f"{place} is a node of a Redis Cluster; use a redis+cluster: URL for it.")
    if in_cluster and (state := _pairs(server.do("CLUSTER", "INFO")).get("cluster_state")) != "ok":
        yield _problem(
            "cluster-state",
            place,
            f"{place} says that the state of its Cluster is {state}; look at `CLUSTER INFO` and mend it.",
        )
    yield from _memory(place, info)
    yield from _persistence(server, info)


def _memory(place: str, info: Mapping[str, str]) -> Iterator[Finding]:
    policy = info.get("maxmemory_policy")
    if policy is None:
        yield _problem(
            "eviction-unknown",
            place,
            f"{place} does not say what it does when its memory is full; see that its maxmemory-policy is noeviction.",
        )
    elif policy != "noeviction":
        yield _problem(
            "evicts",
            place,
            f"{place} throws away keys, jobs among them, when its memory is full (maxmemory-policy {policy}); "
            "set maxmemory-policy noeviction.",
        )
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if most and used > NEARLY_FULL * most:
        yield _problem(
            "memory-full",
            place,
            f"{place} has used {used / most:.0%} of its memory ({used:,} of {most:,} bytes) and takes no jobs when "
            "it is full; raise maxmemory, or run more workers.",
        )


def _persistence(server: Server, info: Mapping[str, str]) -> Iterator[Finding]:
    place = server.place
    has_log = info.get("aof_enabled") == "1"
    if has_log:
        policy = _config(server, "appendfsync")
        if policy is None:
            yield _problem(
                "fsync-unknown",
                place,
                f"{place} does not let its appendfsync be read; see that it is everysec or always.",
            )
        elif policy == "no":
            yield _problem(
                "fsync-off",
                place,
                f"{place} leaves it to the system when its log reaches the disk (appendfsync no), so that a crash of "
                "the machine loses the jobs of half a minute; set appendfsync everysec or always.",
            )
    else:
        saves = _config(server, "save")
        if saves is None:
            yield _problem(
                "persistence-unknown",
                place,
                f"{place} keeps no log (appendonly no) and does not let its save points be read, so that a restart "
                "loses the latest jobs or all of them; set appendonly yes.",
            )
        elif not saves:
            yield _problem(
                "no-persistence",
                place,
                f"{place} keeps nothing on disk, so that a restart loses all jobs; set appendonly yes.",
            )
        else:
            yield _problem(
                "snapshots-only",
                place,
                f"{place} keeps snapshots only (save {saves}), so that a crash loses the jobs since the last one; "
                "set appendonly yes.",
            )
    for name, what in (
        ("aof_last_write_status", "write to its log"),
        ("aof_last_bgrewrite_status", "rewrite its log"),
        ("rdb_last_bgsave_status", "save a snapshot"),
    ):
        if (status := info.get(name, "ok")) != "ok":
            yield _problem(
                "write-failed",
                place,
                f"{place} failed to {what} the last time ({name} {status}); look at its log and its disk.",
            )


def _problem(code: str, place: str, text: str) -> Finding:
    return Finding("problem", code, text, place)


def _config(server: Server, name: str) -> str | None:
    """The value of a setting; None where CONFIG is forbidden, or unknown as on some managed services."""
    try:
        answer = server.do("CONFIG", "GET", name)
    except BrokerRefusedError:
        return None
    return answer[1].decode() if len(answer) == 2 else None


def _pairs(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()


#: How many entries of a list of fresh jobs are read at once, and at most how many are looked up one by one.
_SURVEY_PAGE, _MOST = 5_000, 100
#: How many keys are repaired in one step, and the COUNT of one SCAN.
_REPAIR_PAGE, _NAMES = 500, 5_000
_INDICES = (":keys", ":failed", ":failures", ":fkeys", ":aside", ":dead", ":dkeys")
_FOUND = "Its job was gone; it was found by laneway check --repair."
_read_levels = msgspec.msgpack.Decoder(list[int]).decode

_T = TypeVar("_T")
#: Gives back the claims of workers. Returns the number of claims.
GiveBack = Callable[[Sequence[str]], int]


@dataclass
class QueueSurvey:
    """The findings in one queue."""

    layout: Layout
    #: Keys whose job, or grave, is missing from an index or has a wrong count of payloads.
    jobs: set[str] = field(default_factory=set)
    graves: set[str] = field(default_factory=set)
    #: Keys whose job, or grave, has no payload at all.
    hollow: set[str] = field(default_factory=set)
    hollow_graves: set[str] = field(default_factory=set)
    #: Entries of indices that match no job: index and member.
    strays: set[tuple[str, bytes]] = field(default_factory=set)
    #: Worker, token and key of each claim.
    claims: set[tuple[str, str, str]] = field(default_factory=set)
    #: Keys of claims that are missing from their worker's list.
    unlisted: set[str] = field(default_factory=set)


@dataclass
class RepairFindings:
    """The findings in all queues."""

    surveys: list[QueueSurvey] = field(default_factory=list)
    #: The number of claims by worker: of dead workers, and of unknown workers.
    dead: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    #: By root: keys (queued, dead) with payloads that may have no job.
    orphans: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    orphan_count: int = 0

    def count(self, of: Callable[[QueueSurvey], int]) -> int:
        return sum(map(of, self.surveys))


class RedisHealth:
    """The health tier."""

    auto_create = False

    def __init__(self, layouts: Layouts, give_back: GiveBack) -> None:
        self._layouts = layouts
        self._give_back = give_back

    def unmade(self) -> Finding | None:
        return None

    def check(self, app: Laneway | None = None) -> list[Finding]:
        """Problems of the servers' settings and of the stored jobs. Looks at every job."""
        return problems(self._layouts.server) + check(self._layouts)

    def repair(self) -> list[str]:
        """Repair the stored jobs. Leaves the servers' settings alone."""
        return repair(self._layouts, self._give_back)

    def duties(self, queues: Collection[str]) -> Sequence[Duty]:
        return ()

    def provide(self, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        return ()


def check(layouts: Layouts) -> list[Finding]:
    """The problems of the stored data."""
    queues = layouts.read_all()
    found = _look(layouts, queues)
    counted = [
        ("unknown-worker", sum(found.unknown.values()), "Jobs claimed by a worker that does not exist"),
        (
            "unlisted-claims",
            found.count(lambda each: len(each.unlisted)),
            "Claims that are not in the list of their worker",
        ),
        (
            "not-indexed",
            found.count(lambda each: len(each.jobs) + len(each.graves)),
            "Jobs that are not in all their indices",
        ),
        ("stray-entries", found.count(lambda each: len(each.strays)), "Entries of indices without such a job"),
        (
            "no-payload",
            found.count(lambda each: len(each.hollow) + len(each.hollow_graves)),
            "Jobs without any payload",
        ),
        ("no-job", found.orphan_count, "Payloads without a job"),
    ]
    resharding = [
        being_resharded(layout.queue, layout.shards, layout.resharding, layout.to_move, layout.moved)
        for layout in queues
        if layout.resharding
    ]
    dead = [CLAIMS_OF_THE_DEAD] if found.dead else []
    return resharding + dead + [mendable(code, number, what) for code, number, what in counted if number]


def repair(layouts: Layouts, give_back: GiveBack) -> list[str]:
    """Repair what can be repaired. Returns one sentence for each kind of repair."""
    found = _look(layouts, layouts.read_all())
    for each in found.surveys:
        with suppress(StaleLayoutError):  # a resharding has begun since
            _repair(layouts, each)
    # This comes after the repair of the workers' lists, by which claims are given back.
    given_back = give_back([*found.dead, *found.unknown]) if found.dead or found.unknown else 0
    saved = sum(_check_orphans(layouts, root, keys, mend=True) for root, keys in found.orphans.items())
    done = [
        (found.count(lambda each: len(each.unlisted)), "Claims put into the list of their worker"),
        (found.count(lambda each: len(each.strays)), "Entries of indices removed that had no such job"),
        (found.count(lambda each: len(each.jobs) + len(each.graves)), "Jobs put into all their indices"),
        (found.count(lambda each: len(each.hollow) + len(each.hollow_graves)), "Jobs without any payload removed"),
        (given_back, "Claims of dead or unknown workers given back"),
        (saved, "Payloads without a job put into the morgue"),
    ]
    return [f"{what}: {number}." for number, what in done if number]


# -- looking -------------------------------------------------------------------------------------------


def _ask(layouts: Layouts, script: str, root: str, *texts: bytes, **args: object) -> list[Any]:
    """A script's answer about a queue. Raises StaleLayoutError if it is being resharded, or gone."""
    answer: list[Any] = layouts.server.run(load(script), [root], [layouts.args(**args), *texts])
    return ensure_current(answer)


def _look(layouts: Layouts, queues: Sequence[Layout]) -> RepairFindings:
    found = RepairFindings()
    for layout in queues:
        with suppress(StaleLayoutError):  # a resharding has begun since
            found.surveys.append((_survey_claims if layout.resharding else _survey)(layouts, layout))
    _sort_claims(layouts, found)
    _find_orphans(layouts, {layout.root for layout in queues if not layout.resharding}, found)
    return found


def _survey(layouts: Layouts, layout: Layout) -> QueueSurvey:
    """Look through a queue. Raises StaleLayoutError if it is being resharded."""
    found = _survey_claims(layouts, layout)
    fresh_jobs: set[bytes] = set()
    for what, text in _walk(layouts, layout, ":jobs"):
        if what == b"ready":
            fresh_jobs.add(text)
        else:
            {b"job": found.jobs, b"hollow": found.hollow}[what].add(text.decode())
    found.jobs |= _not_in_list(layouts, layout, fresh_jobs)
    for what, text in _walk(layouts, layout, ":morgue"):
        {b"grave": found.graves, b"hollow grave": found.hollow_graves}[what].add(text.decode())
    for index in (*_INDICES, *_due_indices(layouts, layout)):
        found.strays |= {(index, text) for _, text in _walk(layouts, layout, index)}
    return found


def _survey_claims(layouts: Layouts, layout: Layout) -> QueueSurvey:
    """Look only at the claims of a queue. Works while it is being resharded."""
    found = QueueSurvey(layout)
    for what, text in _walk(layouts, layout, ":running"):
        if what == b"unlisted":
            found.unlisted.add(text.decode())
        else:
            worker, token, key = text.decode().split("\0", 2)
            found.claims.add((worker, token, key))
    return found


def _walk(layouts: Layouts, layout: Layout, what: str) -> Iterator[tuple[bytes, bytes]]:
    cursor = b"0"
    while True:
        _, cursor, *said = _ask(layouts, "survey", layout.root, what=what, cursor=cursor.decode())
        yield from zip(said[::2], said[1::2], strict=True)
        if cursor == b"0":
            return


def _due_indices(layouts: Layouts, layout: Layout) -> list[str]:
    """The indices by due time of all shards and priorities."""
    stored = layouts.server.do("HGET", f"{layout.root}:meta", "levels")
    levels = ["", *(f":{level}" for level in (_read_levels(stored) if stored else ()))]
    return [f":due:{layout.name}:{shard}{level}" for shard in range(layout.shards) for level in levels]


def _not_in_list(layouts: Layouts, layout: Layout, entries: set[bytes]) -> set[str]:
    """Keys of fresh jobs that are missing from the list of their shard. No worker would ever claim them."""
    by_shard: dict[int, set[bytes]] = {}
    for entry in entries:
        by_shard.setdefault(shard_of(entry[15:].decode(), layout.shards), set()).add(entry)
    missing: set[bytes] = set()
    for shard, some in by_shard.items():
        first = 0
        while some:
            last = first + _SURVEY_PAGE - 1
            page = layouts.server.do("LRANGE", f"{layout.root}:ready:{layout.name}:{shard}", first, last)
            some.difference_update(page)
            first += len(page)
            if len(page) < _SURVEY_PAGE:
                break
        missing |= some
    # Some jobs may have been claimed since. Some entries may have been skipped as the list became shorter. So each one
    # is looked up.
    left = sorted(missing)[:_MOST]
    return {key.decode() for key in _ask(layouts, "survey_ready", layout.root, *left)[1:]} if left else set()


def _sort_claims(layouts: Layouts, found: RepairFindings) -> None:
    """Find the claims of workers that are not alive. Reads the claims twice: a worker may have left in between."""
    living, dead = _workers(layouts)
    for each in found.surveys:
        suspicious = {claim for claim in each.claims if claim[0] not in living}
        if not suspicious:
            continue
        with suppress(StaleLayoutError):
            suspicious &= _survey_claims(layouts, each.layout).claims
        for worker, _, _ in suspicious:
            whose = found.dead if worker in dead else found.unknown
            whose[worker] = whose.get(worker, 0) + 1


def _workers(layouts: Layouts) -> tuple[set[str], set[str]]:
    keys = layouts.keys
    living, dead = layouts.server.do_all([("HKEYS", keys.leases), ("ZRANGE", keys.dead, 0, -1)])
    return {name.decode() for name in living}, {name.decode() for name in dead}


def _find_orphans(layouts: Layouts, roots: set[str], found: RepairFindings) -> None:
    for root, queued, dead in _spilled(layouts, roots):
        with suppress(StaleLayoutError):
            if count := _check_orphans(layouts, root, (queued, dead)):
                found.orphan_count += count
                known = found.orphans.setdefault(root, ([], []))
                known[0].extend(queued)
                known[1].extend(dead)


def _spilled(layouts: Layouts, roots: set[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Keys with payloads outside their records, by queue, a page at a time. Reads the names of Redis keys."""
    for server in layouts.server.servers():
        cursor = b"0"
        while True:
            pattern = "{" + _literally(layouts.keys.prefix) + ":*:*p:*"
            cursor, names = server.do("SCAN", cursor, "MATCH", pattern, "COUNT", _NAMES)
            keys: dict[str, tuple[list[str], list[str]]] = {}
            for name in names:
                tag, _, rest = name.decode().partition("}")
                place, _, key = rest[1:].partition(":")
                if tag + "}" in roots and place in ("p", "dp"):
                    keys.setdefault(tag + "}", ([], []))[place == "dp"].append(key)
            for root, (queued, dead) in keys.items():
                yield root, queued, dead
            if cursor == b"0":
                break


def _literally(text: str) -> str:
    return "".join("\\" + char if char in "*?[]\\^" else char for char in text)


def _check_orphans(layouts: Layouts, root: str, keys: tuple[list[str], list[str]], *, mend: bool = False) -> int:
    count: int = _ask(layouts, "orphans", root, queued=keys[0], buried=keys[1], mend=mend, error=_FOUND)[1]
    return count


# -- mending -------------------------------------------------------------------------------------------


def _repair(layouts: Layouts, found: QueueSurvey) -> None:
    todo: list[tuple[str, Any]] = [
        *(("stray", each) for each in found.strays),
        *(("unlisted", key) for key in found.unlisted),
        *(("jobs", key) for key in found.jobs | found.hollow),
        *(("graves", key) for key in found.graves | found.hollow_graves),
    ]
    for first in range(0, len(todo), _REPAIR_PAGE):
        page = todo[first : first + _REPAIR_PAGE]
        named = {kind: [each for what, each in page if what == kind] for kind in ("jobs", "graves", "unlisted")}
        strays = [part for what, each in page if what == "stray" for part in each]
        _ask(layouts, "repair", found.layout.root, *strays, **named)
