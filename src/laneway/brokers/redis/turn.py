"""ServerTurns: the verb `turn` on one server: one round trip settles finished claims and claims due jobs.

`take_turn`, which `cluster_turn` uses as well, repeats a turn with new layouts when a script reports a stale layout.
It refuses outboxes that are too large for one step: Redis reads at most half a gigabyte at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...broker import Answer, Turn
from ...errors import BrokerError, BrokerRefusedError, EnqueueError, LeaseLost
from ...jobs.data import Kind, NewJob
from ...jobs.settlement import Settlement
from ..shared import another_kind, check_jobs, storable
from .client.errors import StaleLayoutError
from .codec import claim_of
from .enqueue import JobWriter, TagList
from .layout import TRIES, Layout, Layouts, outdated
from .script import load

#: The most characters that the runs settled by one turn may send, in all.
OUTBOX_CHARS = 100_000_000


class _SettlementArgs:
    """The settlements of a turn as arguments of its script."""

    def __init__(self) -> None:
        #: By tag and token: keys whose run is done and sends nothing.
        self.groups: dict[tuple[int, int], list[str]] = {}
        self.others: list[Sequence[object]] = []
        #: The settlements behind `others`.
        self.sources: list[Settlement] = []
        #: Keys of claims whose shard does not exist any more.
        self.gone: list[str] = []

    def finished(self) -> list[tuple[int, int, list[str]]]:
        return [(tag, token, keys) for (tag, token), keys in self.groups.items()]


#: Takes a turn with the layout of its queue, and notes the layouts of other queues that it uses. The last argument says
#: whether the layouts were read just now.
Take = Callable[[Turn, Layout, dict[str, Layout], bool], Answer]


def take_turn(layouts: Layouts, turn: Turn, take: Take) -> Answer:
    """What `take` answers for the layout of the turn's queue. Repeats `take` if a layout was outdated."""
    sending = [settlement.outbox for settlement in turn.settlements if settlement.outbox]
    for outbox in sending:
        check_jobs(outbox)
    _ensure_size(sending)
    for attempt in range(TRIES):
        layout = layouts.get(turn.queue)
        used = {turn.queue: layout}
        try:
            if not attempt:
                _expect_known_epochs(layouts, turn.settlements, used)
            return take(turn, layout, used, attempt > 0)
        except StaleLayoutError:
            for each in used.values():
                layouts.refresh(each)
    raise outdated(turn.queue)


def _ensure_size(sending: Sequence[Sequence[NewJob]]) -> None:
    """Refuse outboxes that Redis would not accept: it reads half a gigabyte at once, and a turn is one step."""
    sent = [(sum(len(job.body) for job in outbox), outbox) for outbox in sending]
    if sum(chars for chars, _ in sent) > OUTBOX_CHARS:
        chars, most = max(sent, key=lambda each: each[0])
        raise EnqueueError(
            f"A run has sent {chars:,} characters in {len(most):,} jobs, and what is sent at once may be "
            f"{OUTBOX_CHARS:,} at most; store what is large elsewhere, and send where it is.",
            place=(most[0].queue, most[0].key),
        )


def _expect_known_epochs(layouts: Layouts, settlements: Sequence[Settlement], used: dict[str, Layout]) -> None:
    """Raise StaleLayoutError if a claim has a newer epoch than the cached layout of its queue."""
    for settlement in settlements:
        claim = settlement.claim
        layout = used.get(claim.queue)
        if layout is None:
            layout = used[claim.queue] = layouts.get(claim.queue)
        if claim.ref > layout.epoch:
            raise StaleLayoutError


class ServerTurns:
    """Turns on one server."""

    def __init__(self, layouts: Layouts, storing: JobWriter) -> None:
        self._layouts = layouts
        self._storing = storing
        #: The largest token that this process was given.
        self._token = 0

    def turn(self, turn: Turn) -> Answer:
        return take_turn(self._layouts, turn, self._take)

    def _take(self, turn: Turn, layout: Layout, used: dict[str, Layout], is_fresh: bool) -> Answer:
        tags = TagList(*layout.tags)  # all of them, because the script checks that none is being resharded
        heir = tags.place(layout.next_tags[0]) if layout.next_tags else None
        told = self._settlement_args(turn.settlements, tags, used)
        limit = turn.limit if turn.epoch in (0, layout.epoch) else 0
        shards = range(layout.shards) if turn.shards is None else dict.fromkeys(turn.shards)
        wanted = [tags.place(layout.tags[shard]) for shard in shards if 0 <= shard < layout.shards]
        args = self._layouts.args(
            worker=turn.worker,
            seq=turn.seq,
            finished=told.finished(),
            settlements=told.others,
            gone=told.gone,
            claim=wanted,
            limit=limit,
            batch=turn.batch,
            in_order=turn.in_order,
            max_payloads=turn.max_payloads,
            floor=self._token,
            own=layout.shards,
            resharding=layout.record.resharding,
            heir=heir,
            is_fresh=is_fresh,
            bells=self._storing.wakeup_keys(tags),
        )
        answer: list[Any] = self._layouts.server.run(load("turn"), tags.names, [args], turn.on_sent)
        if answer[0] == b"unknown":
            self._admit(turn.worker, tags.names[0])
            answer = self._layouts.server.run(load("turn"), tags.names, [args])
        if answer[0] == b"unknown":
            raise dead(turn.worker)
        if answer[0] == b"stale":
            raise StaleLayoutError
        if answer[0] == b"late":
            raise late(turn.worker)
        if answer[0] == b"kind":
            outbox = told.sources[answer[1] - 1].outbox or []
            raise another_kind(outbox[answer[2] - 1], Kind(answer[3]))
        _, token, refused, resharding, *claims = answer
        self._token = max(self._token, token)
        shard_of = [layout.shard(name) for name in tags.names]
        return Answer(
            [
                claim_of(layout.queue, layout.epoch, shard_of[tag - 1], key, blob)
                for tag, key, blob in zip(claims[::3], claims[1::3], claims[2::3], strict=True)
            ],
            token,
            in_order(refused, turn.settlements) if refused else [],
            layout.epoch,
            layout.shards,
            resharding,
        )

    def _settlement_args(
        self, settlements: Sequence[Settlement], tags: TagList, used: dict[str, Layout]
    ) -> _SettlementArgs:
        """Settlements as arguments of the script."""
        told = _SettlementArgs()
        for settlement in settlements:
            claim = settlement.claim
            layout = used.get(claim.queue)
            if layout is None:
                layout = used[claim.queue] = self._layouts.get(claim.queue)
            if claim.ref != layout.epoch or claim.shard >= layout.shards:
                # The claim was taken back, and then the queue was resharded.
                told.gone.append(claim.key)
                continue
            tag = tags.place(layout.tags[claim.shard])
            outbox = settlement.outbox
            if settlement.verdict == "done" and not outbox:
                told.groups.setdefault((tag, claim.token), []).append(claim.key)
                continue
            told.sources.append(settlement)
            sent = self._storing.encode(outbox, tags, used) if outbox else None
            told.others.append((*end_of(settlement, tag), sent))
        return told

    def _admit(self, worker: str, tag: str) -> None:
        """Make a worker known to a shard; raises LeaseLost if the worker is not alive."""
        layouts = self._layouts
        if not layouts.server.run(load("admit"), [tag], [layouts.args(worker=worker, leases=layouts.keys.leases)]):
            raise dead(worker)


def end_of(settlement: Settlement, tag: int) -> tuple[object, ...]:
    """How a run ended, as arguments of a script. The jobs that it has sent follow."""
    return (
        tag,
        settlement.claim.key,
        settlement.claim.token,
        settlement.verdict,
        settlement.delay_s,
        settlement.retry_count,
        storable(settlement.error),
        settlement.done,
        settlement.buried,
        settlement.died,
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


def late(worker: str) -> BrokerError:
    return BrokerRefusedError(f"The worker {worker} has taken another turn since; give it the next number.")
