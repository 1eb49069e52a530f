"""What is unsafe about a server for jobs, a sentence each. It looks, and never changes anything.

Most of it is in INFO, which managed services allow; CONFIG, which many forbid, is only asked for what is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...errors import BrokerError
from .client.calling import Caller
from .client.server import Server

#: The oldest Redis that has every command of ours. Every Valkey has.
OLDEST = (6, 2)
#: The part of maxmemory from which on it is time to do something.
NEARLY_FULL = 0.9


def problems(caller: Caller) -> list[str]:
    """Every problem, of every server."""
    found: list[str] = []
    for server in caller.servers():
        try:
            found += _of_server(server, caller.is_cluster, is_replica=False)
        except BrokerError as error:
            if not caller.is_cluster:
                raise
            found.append(str(error))
    for server in caller.replicas():
        try:
            found += _of_server(server, caller.is_cluster, is_replica=True)
        except BrokerError as error:
            found.append(str(error))
    return found


def _of_server(server: Server, in_cluster: bool, is_replica: bool) -> Iterator[str]:
    info = _pairs(server.do("INFO"))
    place = server.place
    version = info.get("redis_version", "")
    if "valkey_version" not in info and (numbers := _numbers(version)) and numbers < OLDEST:
        yield f"{place} is Redis {version}; Laneway needs 6.2 or newer, or any Valkey."
    if info.get("role") == "slave" and not is_replica:
        yield f"{place} is a replica, which cannot be written to; give the URL of the primary."
    if info.get("cluster_enabled") == "1" and not in_cluster:
        yield f"{place} is a node of a Redis Cluster; use a redis+cluster: URL for it."
    if in_cluster and (state := _pairs(server.do("CLUSTER", "INFO")).get("cluster_state")) != "ok":
        yield f"{place} says that the state of its Cluster is {state}; look at `CLUSTER INFO` and mend it."
    yield from _memory(place, info)
    yield from _persistence(server, info)


def _memory(place: str, info: Mapping[str, str]) -> Iterator[str]:
    policy = info.get("maxmemory_policy")
    if policy is None:
        yield f"{place} does not say what it does when its memory is full; see that its maxmemory-policy is noeviction."
    elif policy != "noeviction":
        yield (
            f"{place} throws away keys, jobs among them, when its memory is full (maxmemory-policy {policy}); "
            "set maxmemory-policy noeviction."
        )
    most, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if most and used > NEARLY_FULL * most:
        yield (
            f"{place} has used {used / most:.0%} of its memory ({used:,} of {most:,} bytes) and takes no jobs when "
            "it is full; raise maxmemory, or run more workers."
        )


def _persistence(server: Server, info: Mapping[str, str]) -> Iterator[str]:
    place = server.place
    has_log = info.get("aof_enabled") == "1"
    if has_log:
        policy = _config(server, "appendfsync")
        if policy is None:
            yield f"{place} does not let its appendfsync be read; see that it is everysec or always."
        elif policy == "no":
            yield (
                f"{place} leaves it to the system when its log reaches the disk (appendfsync no), so that a crash of "
                "the machine loses the jobs of half a minute; set appendfsync everysec or always."
            )
    else:
        saves = _config(server, "save")
        if saves is None:
            yield (
                f"{place} keeps no log (appendonly no) and does not let its save points be read, so that a restart "
                "loses the latest jobs or all of them; set appendonly yes."
            )
        elif not saves:
            yield f"{place} keeps nothing on disk, so that a restart loses all jobs; set appendonly yes."
        else:
            yield (
                f"{place} keeps snapshots only (save {saves}), so that a crash loses the jobs since the last one; "
                "set appendonly yes."
            )
    for name, what in (
        ("aof_last_write_status", "write to its log"),
        ("aof_last_bgrewrite_status", "rewrite its log"),
        ("rdb_last_bgsave_status", "save a snapshot"),
    ):
        if (status := info.get(name, "ok")) != "ok":
            yield f"{place} failed to {what} the last time ({name} {status}); look at its log and its disk."


def _config(server: Server, name: str) -> str | None:
    """A setting; None where CONFIG is forbidden, or unknown as on some managed services."""
    try:
        answer = server.do("CONFIG", "GET", name)
    except BrokerError:
        return None
    return answer[1].decode() if len(answer) == 2 else None


def _pairs(text: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else ()
