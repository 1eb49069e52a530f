"""What the scripts take and say, and how it becomes what the rest of Laneway knows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...job import Claim, Headers, Kind, NewJob, Payload
from ...merge import HEAD

_write_headers = msgspec.json.Encoder().encode
_read_headers = msgspec.json.Decoder(dict[str, str]).decode


class Entry(msgspec.Struct, array_like=True):
    """A payload as it is stored in a claim or shown in a view; False is what Lua has for nothing."""

    body: str
    score: float
    identity: str
    attempt: int
    deaths: int
    perform_at: float | bool
    seq: int = 0
    headers: str | bool = False
    expires: float | bool = False

    def payload(self, kind: Kind) -> Payload:
        """The payload as others see it: without the score of a head, which is nobody's business."""
        if kind is not Kind.KEYED:
            return Payload(self.body, self.score, self.identity)
        score = self.perform_at if self.score == HEAD else self.score
        return Payload(self.body, score, self.identity, self.attempt, headers_of(self.headers), self.deaths)


class Held(msgspec.Struct, array_like=True):
    """A claim as it is stored."""

    token: int
    pos: int
    worker: str
    kind: int
    perform_at: float
    seq: int
    retry_count: int
    attempt: int
    deaths: int
    priority: int
    error: str | bool
    headers: str | bool
    expires: float | bool
    not_before: float | bool
    latest: float | bool
    entries: list[Entry]


_read_held = msgspec.msgpack.Decoder(Held).decode
_KINDS = tuple(Kind)


def headers_of(stored: str | bool) -> Headers | None:
    return _read_headers(stored) if isinstance(stored, str) else None


def claim_of(queue: str, epoch: int, shard: int, key: bytes, blob: bytes) -> Claim:
    """A claim as a worker gets it; its `ref` is the epoch of the shard that it lies in."""
    held = _read_held(blob)
    kind = _KINDS[held.kind]
    return Claim(
        queue,
        epoch,
        key.decode(),
        held.token,
        held.perform_at,
        held.retry_count,
        held.attempt,
        held.deaths,
        [entry.payload(kind) for entry in held.entries],
        held.error or None if isinstance(held.error, bool) else held.error,
        headers_of(held.headers),
        kind,
        shard,
        held.priority,
    )


def new_job(job: NewJob, tag: int, old: int | None) -> Sequence[object]:
    """A new job as scripts take it; see scripts/parts/adding.lua."""
    quiet = job.quiet
    return (
        tag,
        old,
        job.kind.value,
        job.key,
        job.body,
        job.identity,
        job.perform_at,
        job.delay_s,
        job.perform_at is not None or job.delay_s > 0,
        job.score,
        job.priority or None,
        job.expires,
        _write_headers(job.headers).decode() if job.headers else None,
        None if quiet is None else (quiet.grace_s, quiet.max_wait_s, quiet.max_size),
    )
