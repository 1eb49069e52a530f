"""Turns: the verb `turn`: one script call settles finished claims and claims due jobs.

On one server the call also stores what the runs have sent, to any queue. On a Cluster it stores what they have sent to
their own queue; jobs for other queues go through the outbox (`outbox`). A turn is refused if what its runs have sent is
too large for one step: Redis reads at most half a gigabyte at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...broker import Answer, Turn
from ...errors import BrokerAwayError, BrokerRefusedError, EnqueueError, LeaseLost
from ...jobs.data import Kind, NewJob
from ...jobs.settlement import Settlement
from ...jobs.shards import DEFAULT_SHARDS
from ..shared import another_kind, check_jobs, storable
from .client.errors import StaleLayoutError
from .codec import claim_of
from .enqueue import JobWriter, TargetQueues
from .layout import TRIES, Layout, Layouts, outdated
from .outbox import ClusterOutbox, OutboxEntry, by_queue, is_ordered, text_of
from .script import load

#: The most characters that the runs settled by one turn may send, in all.
OUTBOX_CHARS = 100_000_000


class SettlementArgs:
    """The settlements of a turn as arguments of its script."""

    def __init__(self) -> None:
        #: By token: keys whose run is done and sends nothing.
        self.groups: dict[int, list[str]] = {}
        self.others: list[Sequence[object]] = []
        #: For each of `others`: the jobs that its run sends and that the script stores.
        self.stored: list[Sequence[NewJob]] = []
        #: For each of `others`: the jobs that go through the outbox, by queue.
        self.elsewhere: list[dict[str, list[NewJob]]] = []


class Turns:
    """Takes turns."""

    def __init__(self, layouts: Layouts, writer: JobWriter, outbox: ClusterOutbox | None) -> None:
        self._layouts = layouts
        self._writer = writer
        #: For what runs send to other queues; None on one server, where a script may touch them all.
        self._outbox = outbox
        #: The largest token that this process was given.
        self._token = 0

    def turn(self, turn: Turn) -> Answer:
        sent = [settlement.outbox for settlement in turn.settlements if settlement.outbox]
        for outbox in sent:
            check_jobs(outbox)
        _ensure_size(sent)
        if self._outbox is not None:
            self._prepare_elsewhere(turn, [job for outbox in sent for job in outbox])
        for _ in range(TRIES):
            layout = self._layouts.get(turn.queue)
            used = {turn.queue: layout}
            try:
                return self._take(turn, layout, used)
            except StaleLayoutError:
                for each in used.values():
                    self._layouts.refresh(each)
        raise outdated(turn.queue)

    def _prepare_elsewhere(self, turn: Turn, sent: Sequence[NewJob]) -> None:
        """Make the other queues that jobs are for. Refuse jobs whose key belongs to a job of another kind there.

        This comes before their runs are settled.
        """
        for queue, jobs in by_queue(sent).items():
            if queue != turn.queue:
                with suppress(BrokerAwayError):  # the runs are settled all the same, and the jobs delivered later
                    self._layouts.declare(queue, DEFAULT_SHARDS)  # so that operators see what is on its way
                    self._writer.check(jobs)

    def _take(self, turn: Turn, layout: Layout, used: dict[str, Layout]) -> Answer:
        queues = TargetQueues(self._layouts, used)
        queues.place(layout, gets_jobs=False)
        settled = self._settlement_args(turn, queues)
        shards = range(layout.shards) if turn.shards is None else dict.fromkeys(turn.shards)
        args = self._layouts.args(
            worker=turn.worker,
            seq=turn.seq,
            own=turn.queue,
            layout=layout.name,
            layouts=queues.layouts,
            finished=list(settled.groups.items()),
            settlements=settled.others,
            shards=[shard for shard in shards if 0 <= shard < layout.shards],
            limit=turn.limit if turn.epoch in (0, layout.epoch) else 0,
            batch=turn.batch,
            in_order=turn.in_order,
            max_payloads=turn.max_payloads,
            floor=self._token,
        )
        server = self._layouts.server
        answer: list[Any] = server.run(load("turn"), queues.roots, [args], turn.on_sent)
        if answer[0] == b"unknown":
            self._admit(turn.worker, layout)
            answer = server.run(load("turn"), queues.roots, [args])
        if answer[0] == b"unknown":
            raise dead(turn.worker)
        if answer[0] == b"stale":
            raise StaleLayoutError
        if answer[0] == b"late":
            raise BrokerRefusedError(f"The worker {turn.worker} has taken another turn since; give it the next number.")
        if answer[0] == b"kind":
            raise another_kind(settled.stored[answer[1] - 1][answer[2] - 1], Kind(answer[3]))
        _, token, refused, resharding, entries, *claims = answer
        self._token = max(self._token, token)
        if resharding != layout.resharding:
            self._layouts.forget(turn.queue)
        if self._outbox is not None and any(settled.elsewhere):
            if entries == 0:
                self._outbox.deliver_stored(layout, {queue for jobs in settled.elsewhere for queue in jobs})
            else:
                self._outbox.deliver(self._entries(layout, settled, entries))
        return Answer(
            [
                claim_of(layout.queue, layout.epoch, layout.shards, key, blob)
                for key, blob in zip(claims[::2], claims[1::2], strict=True)
            ],
            token,
            in_order(refused, turn.settlements) if refused else [],
            layout.epoch,
            layout.shards,
            resharding,
        )

    def _settlement_args(self, turn: Turn, queues: TargetQueues) -> SettlementArgs:
        settled = SettlementArgs()
        for settlement in turn.settlements:
            claim = settlement.claim
            outbox = settlement.outbox
            if settlement.verdict == "done" and not outbox:
                settled.groups.setdefault(claim.token, []).append(claim.key)
                continue
            stored: Sequence[NewJob] = outbox or ()
            elsewhere: dict[str, list[NewJob]] = {}
            if self._outbox is not None:
                elsewhere = by_queue(stored)
                stored = elsewhere.pop(turn.queue, ())
            settled.stored.append(stored)
            settled.elsewhere.append(elsewhere)
            settled.others.append(
                (
                    claim.key,
                    claim.token,
                    settlement.verdict,
                    settlement.delay_s,
                    settlement.retry_count,
                    storable(settlement.error),
                    settlement.done,
                    settlement.buried,
                    settlement.died,
                    queues.encode(stored),
                    [
                        part
                        for queue, jobs in elsewhere.items()
                        for part in (queue, len(jobs), is_ordered(jobs), text_of(jobs))
                    ],
                )
            )
        return settled

    def _entries(self, layout: Layout, settled: SettlementArgs, entries: Any) -> list[OutboxEntry]:
        """What a turn has put into the outbox of its queue."""
        found = []
        for id, places in entries:
            entry = OutboxEntry(layout.root, id.decode(), [])
            entry.jobs += [job for place in places for job in settled.elsewhere[place - 1][entry.queue]]
            found.append(entry)
        return found

    def _admit(self, worker: str, layout: Layout) -> None:
        """Make a worker known to a queue; raises LeaseLost if the worker is not alive."""
        server, leases = self._layouts.server, self._layouts.keys.leases
        if server.is_cluster:  # there no script may look at the leases
            args = self._layouts.args(worker=worker)
            is_alive = server.do("HEXISTS", leases, worker) and server.run(load("admit"), [layout.root], [args])
        else:
            args = self._layouts.args(worker=worker, leases=leases)
            is_alive = server.run(load("admit"), [layout.root], [args])
        if not is_alive:
            raise dead(worker)


def _ensure_size(sent: Sequence[Sequence[NewJob]]) -> None:
    """Refuse outboxes that Redis would not accept: it reads half a gigabyte at once, and a turn is one step."""
    sizes = [(sum(len(job.body) for job in outbox), outbox) for outbox in sent]
    if sum(chars for chars, _ in sizes) > OUTBOX_CHARS:
        chars, most = max(sizes, key=lambda each: each[0])
        raise EnqueueError(
            f"A run has sent {chars:,} characters in {len(most):,} jobs, and what is sent at once may be "
            f"{OUTBOX_CHARS:,} at most; store what is large elsewhere, and send where it is.",
            place=(most[0].queue, most[0].key),
        )


def in_order(refused: Sequence[bytes], settlements: Sequence[Settlement]) -> list[str]:
    """Refused keys in the order of their settlements, each as often as it was refused."""
    left = Counter(key.decode() for key in refused)
    keys = []
    for settlement in reversed(settlements):  # of two settlements of one claim the second was refused
        if left[settlement.claim.key] > 0:
            left[settlement.claim.key] -= 1
            keys.append(settlement.claim.key)
    return keys[::-1]


def dead(worker: str) -> LeaseLost:
    return LeaseLost(f"The worker {worker} has been declared dead.")
