"""Encodes new jobs as script arguments, and decodes script replies into claims and job views.

The fields go by position and must match the scripts: new jobs in scripts/parts/adding.lua, records in records.lua,
views in views.lua. Lua has False for a missing value. `claim_of` runs for every job, so it avoids function calls.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from zlib import crc32

import msgspec

from ...jobs.data import Claim, Headers, JobView, Kind, NewJob, Payload, Status
from ...jobs.merge import HEAD

_write_headers = msgspec.json.Encoder().encode
_read_headers = msgspec.json.Decoder(dict[str, str]).decode


class RecordPayload(msgspec.Struct, array_like=True, gc=False):
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

    def payload(self, kind: Kind, handed_out: int = 0) -> Payload:
        """The payload as workers and operators see it: without the score of a head."""
        if kind is not Kind.KEYED:
            return Payload(self.body, self.score, self.identity)
        score = self.perform_at if self.score == HEAD else self.score
        return Payload(
            self.body, score, self.identity, self.attempt + handed_out, headers_of(self.headers), self.deaths
        )


class JobRecord(msgspec.Struct, array_like=True, gc=False):
    """What follows the first 16 bytes of a job's record; see scripts/parts/records.lua."""

    #: Of the payload that is alone.
    body: str | bool = False
    identity: str | bool = False
    score: float | bool = False
    latest: float | bool = False
    size: int = 1
    retry_count: int = -1
    attempt: int = 0
    deaths: int = 0
    priority: int = 0
    not_before: float | bool = False
    since: float | bool = False
    error: str | bool = False
    expires: float | bool = False
    headers: str | bool = False
    call_attempt: int = 0
    call_deaths: int = 0
    call_at: float | bool = False
    call_seq: int | bool = False
    floor: float | bool = False
    updated_at: float | bool = False
    entries: list[RecordPayload] | bool = False


class ViewRecord(msgspec.Struct, array_like=True):
    """A job as scripts show it; see scripts/parts/views.lua."""

    key: str
    status: Status
    kind: int
    perform_at: float
    seq: int
    retry_count: int
    attempt: int
    deaths: int
    priority: int
    error: str | bool
    updated_at: float | bool
    worker: str | bool
    size: int
    entries: list[RecordPayload]

    @property
    def buried_at(self) -> float | None:
        return None if isinstance(self.updated_at, bool) else self.updated_at

    def job_view(self, queue: str, shard: int) -> JobView:
        kind = _KINDS[self.kind]
        return JobView(
            queue=queue,
            key=self.key,
            status=self.status,
            shard=shard,
            payloads=[entry.payload(kind) for entry in self.entries],
            perform_at=self.perform_at,
            retry_count=self.retry_count,
            attempt=self.attempt,
            kind=kind,
            size=self.size,
            deaths=self.deaths,
            priority=self.priority,
            error=text(self.error),
            updated_at=self.buried_at,
            worker=text(self.worker),
        )


_pack = msgspec.msgpack.Encoder().encode
_read_record = msgspec.msgpack.Decoder(JobRecord).decode
_stamp = struct.Struct(">Bd").unpack_from
_KINDS = tuple(Kind)
_KEYED = Kind.KEYED


def text(stored: str | bool) -> str | None:
    """A text that Lua has, or has not."""
    return stored if isinstance(stored, str) else None


def headers_of(stored: str | bool) -> Headers | None:
    return _read_headers(stored) if isinstance(stored, str) else None


def claim_of(queue: str, epoch: int, shards: int, key: bytes, blob: bytes) -> Claim:
    """A claim as a worker gets it; its `ref` is the epoch of the queue's shards."""
    # Token, worker, place, and the job's record as it was before it was handed out.
    start = blob.index(b"\0", 7) + 5
    state, at = _stamp(blob, start)
    record = _read_record(blob[start + 16 :])
    kind = _KINDS[state & 3]
    headers = None if record.headers is False else headers_of(record.headers)
    if isinstance(record.entries, list):
        payloads = [entry.payload(kind, 1) for entry in record.entries]
    else:
        # Told as Lua has them, without a function for each: this is done for every job.
        body = record.body if isinstance(record.body, str) else ""
        identity = record.identity if isinstance(record.identity, str) else ""
        score = record.score
        if score is False:
            score = at if kind else 0.0  # a plain job has none
        if kind is not _KEYED:
            payloads = [Payload(body, score, identity)]
        else:
            if score == HEAD:
                score = at if record.call_at is False else record.call_at
            payloads = [Payload(body, score, identity, record.call_attempt + 1, headers, record.call_deaths)]
    return Claim(
        queue,
        epoch,
        key.decode(),
        int.from_bytes(blob[:7], "big"),
        at,
        record.retry_count,
        record.attempt + 1,
        record.deaths,
        payloads,
        record.error if isinstance(record.error, str) else None,
        None if kind is _KEYED else headers,
        kind,
        crc32(key) % shards,
        record.priority,
    )


def simple_record(job: NewJob) -> bytes | None:
    """What follows the stamp in the record of a new job of which nothing is said but what every job has; else None."""
    if (
        job.perform_at is not None
        or job.delay_s
        or job.score is not None
        or job.priority
        or job.expires is not None
        or job.headers
        or job.quiet is not None
    ):
        return None
    if job.kind is Kind.PLAIN:
        return _pack((job.body,))
    if job.kind is Kind.COLLECTING:
        return _pack((job.body, job.identity))
    return _pack((job.body, job.identity, False, True))


def new_job(job: NewJob, queue: int, shard: int) -> Sequence[object]:
    """A new job as scripts take it; see scripts/parts/adding.lua."""
    quiet = job.quiet
    return (
        queue,
        shard,
        +job.kind,  # as a number: asking an enum for its value takes longer than all the rest
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
