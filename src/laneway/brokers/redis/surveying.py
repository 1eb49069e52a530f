"""What is unwell with the jobs of one shard. It looks, and changes nothing.

A shard is walked through in pages, by cursors that Redis gives: all of it, and never more than a page in one step.
What is said of a job or an entry holds for the moment of its page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from .client.stale import fresh
from .layout import Layouts
from .script import load

#: Entries of the list of fresh jobs that are read at once, and those that are looked for one by one at most.
_PAGE, _MOST = 5_000, 100
_INDICES = (":keys", ":failed", ":failures", ":fkeys", ":aside", ":dead", ":dkeys", ":due")
_read_levels = msgspec.msgpack.Decoder(list[int]).decode


@dataclass
class Survey:
    """What was found in a shard."""

    tag: str
    #: Keys that are queued or dead there, and do not run.
    keys: set[str] = field(default_factory=set)
    #: Keys whose job, or grave, is not in all its indices, or not with the payloads that there are.
    jobs: set[str] = field(default_factory=set)
    graves: set[str] = field(default_factory=set)
    #: Those that have no payloads at all.
    hollow: set[str] = field(default_factory=set)
    hollow_graves: set[str] = field(default_factory=set)
    #: Entries of indices that say what is not so.
    strays: set[tuple[str, bytes]] = field(default_factory=set)
    #: Worker, token and key of each claim.
    claims: set[tuple[str, str, str]] = field(default_factory=set)
    #: Keys of claims that their worker's list does not have.
    unlisted: set[str] = field(default_factory=set)
    #: Keys that were taken out of it and may not have arrived elsewhere.
    leaving: int = 0


def survey(layouts: Layouts, tag: str) -> Survey:
    """Look through a shard; raises Stale for one that is being left, or is none."""
    found = survey_claims(layouts, tag)
    fresh_jobs: set[bytes] = set()
    for what, text in _walk(layouts, tag, ":jobs"):
        if what == b"ready":
            fresh_jobs.add(text)
        else:
            {b"key": found.keys, b"job": found.jobs, b"hollow": found.hollow}[what].add(text.decode())
    found.jobs |= _not_in_list(layouts, tag, fresh_jobs)
    for what, text in _walk(layouts, tag, ":morgue"):
        graves = {b"key": found.keys, b"grave": found.graves, b"hollow grave": found.hollow_graves}
        graves[what].add(text.decode())
    for index in (*_INDICES, *_levels(layouts, tag)):
        found.strays |= {(index, text) for _, text in _walk(layouts, tag, index)}
    found.leaving = layouts.server.do("HLEN", f"{tag}:leaving")
    return found


def survey_claims(layouts: Layouts, tag: str) -> Survey:
    """Look at the claims of a shard only; it may be one that is being left."""
    found = Survey(tag)
    for what, text in _walk(layouts, tag, ":running"):
        if what == b"unlisted":
            found.unlisted.add(text.decode())
        else:
            worker, token, key = text.decode().split("\0", 2)
            found.claims.add((worker, token, key))
    return found


def _walk(layouts: Layouts, tag: str, what: str) -> Iterator[tuple[bytes, bytes]]:
    cursor = b"0"
    while True:
        _, cursor, *said = layouts.ask("survey", tag, what=what, cursor=cursor.decode())
        yield from zip(said[::2], said[1::2], strict=True)
        if cursor == b"0":
            return


def _levels(layouts: Layouts, tag: str) -> list[str]:
    """The indices of other priorities than 0."""
    stored = layouts.server.do("HGET", f"{tag}:meta", "levels")
    return [f":due:{level}" for level in _read_levels(stored)] if stored else []


def _not_in_list(layouts: Layouts, tag: str, entries: set[bytes]) -> set[str]:
    """Keys of fresh jobs that the list does not have, though it should: then nobody would ever claim them."""
    first = 0
    while entries:
        page = layouts.server.do("LRANGE", f"{tag}:ready", first, first + _PAGE - 1)
        entries.difference_update(page)
        first += len(page)
        if len(page) < _PAGE:
            break
    # Some may have been claimed since, and entries passed over as the list became shorter: so look for each.
    left = sorted(entries)[:_MOST]
    if not left:
        return set()
    answer = layouts.server.run(load("survey_ready"), [tag], [layouts.args(), *left])
    return {key.decode() for key in fresh(answer)[1:]}
