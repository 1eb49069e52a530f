"""SQSTurns: the turn, wait, renew and leave of the workers of one process.

A turn settles finished claims and claims received messages. Receivers run meanwhile in threads of their own
(`receive`): a turn takes the messages that are there and never waits. After an error the same turn continues where
it stopped; the repeat of a finished turn gets the same answer. A forked process starts with nothing held.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Collection, Iterable

import msgspec

from ....broker import Answer, Turn
from ....clock import Clock
from ....errors import BrokerError, LeaseLost
from ....jobs.data import WorkerView
from ..clients import Clients
from ..dynamodb.heartbeat import Heartbeat
from ..dynamodb.retry_store import RetryStore
from ..dynamodb.tables import Tables
from ..settings import BATCH, AWSSettings
from .inflight import ClaimMessages, HeldMessage, Inflight, QueueBuffer
from .intake import Intake
from .queues import SQSQueues
from .receive import Receivers
from .send import MessageSender
from .settle import Settler, TurnSettlements
from .visibility import MessageChange, MessageChanger, VisibilityExtender

#: The lease if no worker has joined.
LEASE_S = 30.0


class _LastTurn:
    """The last turn of a worker on a queue. Its repeat continues it, or gets the same answer."""

    def __init__(self, turn: Turn) -> None:
        self.seq = turn.seq
        self.work = TurnSettlements(turn.settlements)
        self.answer: Answer | None = None


class SQSTurns:
    """The turns of one process."""

    def __init__(
        self,
        clients: Clients,
        channels: SQSQueues,
        tables: Tables,
        sender: MessageSender,
        reporter: Heartbeat,
        settings: AWSSettings,
        clock: Clock,
        *,
        inline: bool = False,
    ) -> None:
        self._clients = clients
        self._channels = channels
        self._tables = tables
        self._sender = sender
        self._reporter = reporter
        self._settings = settings
        self._clock = clock
        self._inline = inline
        self._begin()
        _all_turns.add(self)

    def _begin(self) -> None:
        """Start with nothing held. The child of a fork does the same: the messages belong to its parent."""
        clock, reporter = self._clock, self._reporter
        self._stock = Inflight(clock)
        self._changes = MessageChanger(self._clients, clock)
        memory = RetryStore(self._tables)
        self._arrivals = Intake(self._stock, memory, self._sender, self._changes, clock)
        self._extender = VisibilityExtender(self._stock, self._changes, clock)
        self._settler = Settler(
            self._stock,
            memory,
            self._sender,
            self._channels,
            self._changes,
            clock,
            max_body=self._settings.max_body,
            lease_s=lambda: self._lease_s() or LEASE_S,
            counted=reporter.counted,
        )
        self._receivers = Receivers(
            self._stock,
            self._arrivals,
            self._clients,
            self._channels,
            clock,
            lease_s=self._lease_s,
            paused=lambda queue: reporter.paused(queue),
            wait_s=self._settings.wait_s,
            inline=self._inline,
        )
        self._workers: dict[str, WorkerView] = {}
        self._taken: dict[tuple[str, str], _LastTurn] = {}
        #: One turn of a worker on a queue at a time. A repeat may come while the first try is still under way.
        self._turning: dict[tuple[str, str], threading.Lock] = {}

    # -- workers ---------------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        """Register a worker. From now on messages are received for it."""
        with self._stock.changed:
            self._workers.setdefault(worker.id, worker)

    def leave(self, worker: str) -> int:
        """Give back the claims of a worker and, if it was the last worker here, all received messages."""
        with self._stock.changed:
            if self._workers.pop(worker, None) is None:
                return 0
            for place in [place for place in self._taken if place[0] == worker]:
                del self._taken[place], self._turning[place]
            claims = [claimed for claimed in self._stock.claims.values() if claimed.worker == worker]
            held = self._free(claims)
            if not self._workers:
                for buffer in self._stock.buffers.values():
                    held += self._stock.take_back(buffer)
            self._stock.forget(held)
        self._give_back(held)
        return len(claims)

    def close(self) -> None:
        """End every wait, and the threads. Messages of workers that did not leave stay hidden until they time out."""
        with self._stock.changed:
            self._workers.clear()
            self._receivers.nudge()
        self._changes.close()

    def _free(self, claims: Iterable[ClaimMessages]) -> list[HeldMessage]:
        """End unsettled claims. Returns their messages, and those that wait behind them, to give back."""
        held: list[HeldMessage] = []
        for claimed in claims:
            held += [*claimed.held, *(claimed.group.clear() if claimed.group else ())]
            for each in claimed.held:
                each.is_leaving = True
            self._stock.freed(claimed)
        return held

    def _give_back(self, held: Iterable[HeldMessage]) -> None:
        now = self._clock.monotonic()
        ours = [each for each in held if each.is_ours(now)]
        self._changes.carry_out([MessageChange(message, 0) for each in ours for message in (each.message, *each.twins)])

    # -- turns -----------------------------------------------------------------------------------------

    def turn(self, turn: Turn) -> Answer:
        """Settle and claim. If a turn is repeated after an error, it continues where it stopped."""
        place = (turn.worker, turn.queue)
        with self._stock.changed:
            self._expect(turn.worker)
            turning = self._turning.setdefault(place, threading.Lock())
        with turning:
            taken = self._taken.get(place)
            if taken is None or taken.seq != turn.seq:
                taken = self._taken[place] = _LastTurn(turn)
            if taken.answer is None:
                taken.answer = self._take(turn, taken.work)
                return taken.answer
            return self._repeated(taken.answer)

    def _take(self, turn: Turn, work: TurnSettlements) -> Answer:
        limit = self._wanted(turn)
        buffers: list[QueueBuffer] = []
        problem: BrokerError | None = None
        try:
            if limit:
                buffers = self._receivers.open(turn.queue)
            # First of all, so that the receivers work while this turn settles.
            self._receivers.ask(buffers or self._stock.of(turn.queue), limit)
        except BrokerError as error:
            problem = error  # raised below: finished runs are settled first
        if not work.is_done:
            if work.settlements:
                turn.on_sent()
            self._settler.settle(turn.queue, work, turn.worker)
        if problem is not None:
            raise problem
        if limit and not buffers:
            raise self._channels.missing(turn.queue, False)  # neither SQS queue exists
        if self._inline and limit:
            self._receivers.receive(buffers, limit)
        with self._stock.changed:
            self._expect(turn.worker)  # otherwise no worker would have the new claims
            token = self._stock.token()
            claims = self._stock.take(turn.queue, limit, turn.max_payloads, turn.worker, token)
            errors = [buffer.error for buffer in buffers if buffer.error is not None]
            if errors and not claims:
                raise errors[0].with_traceback(None)  # it may be raised many times, and must not grow
            # A worker that got everything it asked for, and asked for much, will soon want more.
            ahead = limit if len(claims) == limit and limit >= BATCH else 0
            self._receivers.ask(buffers, max(limit - len(claims), ahead))
        return Answer(claims, token, list(work.refused), stayed=list(work.stayed))

    def _repeated(self, answer: Answer) -> Answer:
        """The same answer, without claims that have been given back since.

        The claims are built again, because a handler may have changed those of the first answer.
        """
        again = (self._stock.claim_again(claim.ref) for claim in answer.claims)
        return msgspec.structs.replace(answer, claims=[claim for claim in again if claim is not None])

    def _wanted(self, turn: Turn) -> int:
        """How many claims a turn may bring. SQS queues have one shard, number 0."""
        others = turn.shards is not None and 0 not in turn.shards
        if turn.limit <= 0 or others or turn.epoch not in (0, 1) or self._reporter.paused(turn.queue):
            return 0
        return turn.limit

    def _expect(self, worker: str) -> None:
        if worker not in self._workers:
            raise LeaseLost(f"The worker {worker} has left, or never joined.")

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Wait for queues with received messages, or with an error in receiving: a turn then raises the error."""
        return self._receivers.wait(queues, timeout_s)

    def nudge(self) -> None:
        """End every wait of this process now."""
        self._receivers.nudge()

    def resumed(self) -> None:
        """Wake the receivers and the waits of this process: a queue is no longer paused."""
        self._receivers.resumed()

    def _lease_s(self) -> float | None:
        """For how long messages are hidden; None if there is no worker."""
        return max((worker.lease_s for worker in self._workers.values()), default=None)

    # -- holding ---------------------------------------------------------------------------------------

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Keep messages hidden that this process holds, and give back the worker's claims that it does not know.

        Those are older than `before`, and their token is not in `held`: the answer with them was lost.
        """
        with self._stock.changed:
            self._expect(worker)
            claims = [each for each in self._stock.claims.values() if each.worker == worker]
            lost = [each for each in claims if each.claim.token < before and each.claim.token not in held]
            messages = self._free(lost)
            self._stock.forget(messages)
        self._extender.extend(self._lease_s() or LEASE_S)
        self._give_back(messages)

    def holding(self, queue: str) -> int:
        """The number of claims of a queue that this process holds."""
        return self._stock.count(queue)

    def running(self, worker: str) -> list[str]:
        """The ids of the jobs and calls that a worker has claimed, oldest first."""
        with self._stock.changed:
            claims = [claimed for claimed in self._stock.claims.values() if claimed.worker == worker]
            return [held.id for claimed in claims for held in claimed.held]

    def is_held(self, queue: str, id: str) -> bool:
        """Whether this process holds a claim on a job, by its id or, for a keyed job, by its key."""
        with self._stock.changed:
            return any(
                id == claimed.claim.key or any(id == held.id for held in claimed.held)
                for claimed in self._stock.claims.values()
                if claimed.claim.queue == queue
            )


_all_turns: weakref.WeakSet[SQSTurns] = weakref.WeakSet()


def _begin_all() -> None:
    for turns in tuple(_all_turns):
        turns._begin()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_begin_all)
