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
from typing import TYPE_CHECKING

import msgspec

from ....broker import Answer, Turn
from ....errors import BrokerError, LeaseLost
from ....jobs.data import WorkerView
from ..dynamodb.heartbeat import Heartbeat
from ..dynamodb.retry_state import RetryStore
from ..settings import BATCH
from .inflight import LEASE_S, ClaimMessages, HeldMessage, Inflight, QueueBuffer
from .intake import Intake
from .receive import Receivers
from .send import MessageSender
from .settle import Settler, TurnProgress
from .visibility import MessageChange, MessageChanger, VisibilityExtender

if TYPE_CHECKING:
    from ..account import Account


class SQSTurns:
    """The turns of one process."""

    def __init__(
        self,
        account: Account,
        inflight: Inflight,
        sender: MessageSender,
        heartbeat: Heartbeat,
        *,
        inline: bool = False,
    ) -> None:
        self._account = account
        self._inflight = inflight
        self._sender = sender
        self._heartbeat = heartbeat
        self._inline = inline
        self._begin()
        _all_turns.add(self)

    def _begin(self) -> None:
        """Start with nothing held. The child of a fork does the same: the messages belong to its parent."""
        account, inflight = self._account, self._inflight
        inflight.restart()
        self._changer = MessageChanger(account)
        retry_store = RetryStore(account)
        intake = Intake(account, inflight, retry_store, self._sender, self._changer)
        self._extender = VisibilityExtender(account, inflight, self._changer)
        self._settler = Settler(account, inflight, retry_store, self._sender, self._changer, self._heartbeat)
        self._receivers = Receivers(account, inflight, intake, self._heartbeat, inline=self._inline)
        self._last: dict[tuple[str, str], TurnProgress] = {}
        #: One turn of a worker on a queue at a time. A repeat may come while the first try is still under way.
        self._turning: dict[tuple[str, str], threading.Lock] = {}

    # -- workers ---------------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        """Register a worker. From now on messages are received for it."""
        with self._inflight.changed:
            self._inflight.workers.setdefault(worker.id, worker)

    def leave(self, worker: str) -> int:
        """Give back the claims of a worker and, if it was the last worker here, all received messages."""
        with self._inflight.changed:
            if self._inflight.workers.pop(worker, None) is None:
                return 0
            for place in [place for place in self._last if place[0] == worker]:
                del self._last[place], self._turning[place]
            claims = self._inflight.claims_of(worker)
            held = self._free(claims)
            if not self._inflight.workers:
                for buffer in self._inflight.buffers.values():
                    held += self._inflight.take_back(buffer)
            self._inflight.forget(held)
        self._give_back(held)
        return len(claims)

    def close(self) -> None:
        """End every wait, and the threads. Messages of workers that did not leave stay hidden until they time out."""
        with self._inflight.changed:
            self._inflight.workers.clear()
            self._receivers.nudge()
        self._changer.close()

    def _free(self, claims: Iterable[ClaimMessages]) -> list[HeldMessage]:
        """End unsettled claims. Returns their messages, and those that wait behind them, to give back."""
        held: list[HeldMessage] = []
        for claimed in claims:
            held += [*claimed.held, *(claimed.group.clear() if claimed.group else ())]
            for each in claimed.held:
                each.is_leaving = True
            self._inflight.freed(claimed)
        return held

    def _give_back(self, held: Iterable[HeldMessage]) -> None:
        now = self._account.clock.monotonic()
        ours = [each for each in held if each.is_ours(now)]
        self._changer.carry_out([MessageChange(message, 0) for each in ours for message in each.messages])

    # -- turns -----------------------------------------------------------------------------------------

    def turn(self, turn: Turn) -> Answer:
        """Settle and claim. If a turn is repeated after an error, it continues where it stopped."""
        place = (turn.worker, turn.queue)
        with self._inflight.changed:
            self._expect(turn.worker)
            turning = self._turning.setdefault(place, threading.Lock())
        with turning:
            progress = self._last.get(place)
            if progress is None or progress.seq != turn.seq:
                progress = self._last[place] = TurnProgress(turn.seq, turn.settlements)
            if progress.answer is None:
                progress.answer = self._take(turn, progress)
                return progress.answer
            return self._repeated(progress.answer)

    def _take(self, turn: Turn, progress: TurnProgress) -> Answer:
        limit = self._wanted(turn)
        buffers: list[QueueBuffer] = []
        problem: BrokerError | None = None
        try:
            if limit:
                buffers = self._receivers.open(turn.queue)
            # First of all, so that the receivers work while this turn settles.
            self._receivers.ask(buffers or self._inflight.of(turn.queue), limit)
        except BrokerError as error:
            problem = error  # raised below: finished runs are settled first
        if not progress.is_settled:
            if progress.settlements:
                turn.on_sent()
            self._settler.settle(turn.queue, progress, turn.worker)
        if problem is not None:
            raise problem
        if limit and not buffers:
            raise self._account.queues.missing(turn.queue, False)  # neither SQS queue exists
        if self._inline and limit:
            self._receivers.receive(buffers, limit)
        with self._inflight.changed:
            self._expect(turn.worker)  # otherwise no worker would have the new claims
            token = self._inflight.token()
            claims = self._inflight.take(turn.queue, limit, turn.max_payloads, turn.worker, token)
            errors = [buffer.error for buffer in buffers if buffer.error is not None]
            if errors and not claims:
                raise errors[0].with_traceback(None)  # it may be raised many times, and must not grow
            # A worker that got everything it asked for, and asked for much, will soon want more.
            ahead = limit if len(claims) == limit and limit >= BATCH else 0
            self._receivers.ask(buffers, max(limit - len(claims), ahead))
        return Answer(claims, token, list(progress.refused), stayed=list(progress.stayed))

    def _repeated(self, answer: Answer) -> Answer:
        """The same answer, without claims that have been given back since.

        The claims are built again, because a handler may have changed those of the first answer.
        """
        again = (self._inflight.claim_again(claim.ref) for claim in answer.claims)
        return msgspec.structs.replace(answer, claims=[claim for claim in again if claim is not None])

    def _wanted(self, turn: Turn) -> int:
        """How many claims a turn may bring. SQS queues have one shard, number 0."""
        others = turn.shards is not None and 0 not in turn.shards
        if turn.limit <= 0 or others or turn.epoch not in (0, 1) or self._heartbeat.paused(turn.queue):
            return 0
        return turn.limit

    def _expect(self, worker: str) -> None:
        if worker not in self._inflight.workers:
            raise LeaseLost(f"The worker {worker} has left, or never joined.")

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Wait for queues with received messages, or with an error in receiving: a turn then raises the error."""
        return self._receivers.wait(queues, timeout_s)

    def nudge(self) -> None:
        """End every wait of this process now."""
        self._receivers.nudge()

    # -- holding ---------------------------------------------------------------------------------------

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Keep messages hidden that this process holds, and give back the worker's claims that it does not know.

        Those are older than `before`, and their token is not in `held`: the answer with them was lost.
        """
        with self._inflight.changed:
            self._expect(worker)
            claims = self._inflight.claims_of(worker)
            lost = [each for each in claims if each.claim.token < before and each.claim.token not in held]
            messages = self._free(lost)
            self._inflight.forget(messages)
        self._extender.extend(self._inflight.lease_s() or LEASE_S)
        self._give_back(messages)


_all_turns: weakref.WeakSet[SQSTurns] = weakref.WeakSet()


def _begin_all() -> None:
    for turns in tuple(_all_turns):
        turns._begin()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_begin_all)
