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

#: What the runs that a turn settles may send, in all.
OUTBOX_CHARS = 100_000_000


class _SettlementArgs:
    """The settlements of a turn as its script takes them."""

    def __init__(self) -> None:
        #: Keys of which all was done, and that send nothing: by tag and token.
        self.groups: dict[tuple[int, int], list[str]] = {}
        self.others: list[Sequence[object]] = []
        #: What the others were made from.
        self.sources: list[Settlement] = []
        #: Keys whose shard does not exist any more.
        self.gone: list[str] = []

    def finished(self) -> list[tuple[int, int, list[str]]]:
        return [(tag, token, keys) for (tag, token), keys in self.groups.items()]


#: Takes a turn by the layout of its queue, and notes the layouts of other queues that it goes by. The last argument
#: says whether these were read just now.
Take = Callable[[Turn, Layout, dict[str, Layout], bool], Answer]


def take_turn(layouts: Layouts, turn: Turn, take: Take) -> Answer:
    """What `take` answers for the layout of the turn's queue; again with new ones when one was outdated."""
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
    """Refuse what Redis would not take: it reads half a gigabyte at once, and a turn is one step."""
    sent = [(sum(len(job.body) for job in outbox), outbox) for outbox in sending]
    if sum(chars for chars, _ in sent) > OUTBOX_CHARS:
        chars, most = max(sent, key=lambda each: each[0])
        raise EnqueueError(
            f"A run has sent {chars:,} characters in {len(most):,} jobs, and what is sent at once may be "
            f"{OUTBOX_CHARS:,} at most; store what is large elsewhere, and send where it is.",
            place=(most[0].queue, most[0].key),
        )


def _expect_known_epochs(layouts: Layouts, settlements: Sequence[Settlement], used: dict[str, Layout]) -> None:
    """A claim from an epoch that is not known yet: what is remembered of its queue is older than the claim."""
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
        tags = TagList(*layout.tags)  # all must agree that nothing moves
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
        """Settlements as the script takes them."""
        told = _SettlementArgs()
        for settlement in settlements:
            claim = settlement.claim
            layout = used.get(claim.queue)
            if layout is None:
                layout = used[claim.queue] = self._layouts.get(claim.queue)
            if claim.ref != layout.epoch or claim.shard >= layout.shards:
                # Somebody has taken the claim back, and resharded the queue.
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
        """Have a shard know a worker, if it is alive."""
        layouts = self._layouts
        if not layouts.server.run(load("admit"), [tag], [layouts.args(worker=worker, leases=layouts.keys.leases)]):
            raise dead(worker)


def end_of(settlement: Settlement, tag: int) -> tuple[object, ...]:
    """How a run ended, as scripts take it; what it has sent is told behind that."""
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
    for settlement in reversed(settlements):  # of two about one claim the second was refused
        if left[settlement.claim.key] > 0:
            left[settlement.claim.key] -= 1
            keys.append(settlement.claim.key)
    return keys[::-1]


def dead(worker: str) -> LeaseLost:
    return LeaseLost(f"The worker {worker} has been declared dead.")


def late(worker: str) -> BrokerError:
    return BrokerRefusedError(f"The worker {worker} has taken another turn since; give it the next number.")
