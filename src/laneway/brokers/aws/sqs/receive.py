"""Receiver: a thread that receives from one SQS queue; Receivers: all of a process, and the wait for messages.

A receiver asks SQS only while a worker wants messages, and for no more than the worker wants. Messages that no
worker claims are given back after a moment. A request under way cannot be cancelled: messages that it brings after
the last worker has left are given back at once. A receiver makes one request at a time, because the requests of a
FIFO queue must not overtake each other.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ....errors import BrokerRefusedError
from ....ids import new_id
from ..dynamodb.heartbeat import Heartbeat
from ..errors import MissingError
from ..settings import BATCH
from .inflight import LEASE_S, Inflight, QueueBuffer
from .intake import Intake
from .message import Message, SQSQueue, read

if TYPE_CHECKING:
    from ..account import Account

#: Messages that have been ready for so long, and that no worker here wants, are given back for other workers.
STALE_S = 0.5
#: A worker that asked within this time still wants messages. The waits of a worker are shorter.
RECENT_S = 1.5
#: The same while nothing can be received. Workers then ask less often.
PATIENT_S = 10.0
#: The longest wait for more while messages are ready, so that it notices in time if no worker takes them.
SHORT_WAIT_S = 1
#: The pause after a failed request: the first, and the longest.
BACKOFF_S = (0.1, 2.0)


class Receiver:
    """Receives from one SQS queue for one process."""

    def __init__(
        self,
        account: Account,
        buffer: QueueBuffer,
        inflight: Inflight,
        intake: Intake,
        heartbeat: Heartbeat,
    ) -> None:
        """`heartbeat` knows which queues are paused."""
        self._account = account
        self._buffer = buffer
        self._inflight = inflight
        self._intake = intake
        self._heartbeat = heartbeat
        self._attempt_id = ""
        self._backoff_s = 0.0
        self._thread: threading.Thread | None = None
        #: One request at a time: those of a FIFO queue must not overtake each other.
        self._asking = threading.Lock()

    # -- for callers -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Ensure that the thread runs. The caller holds the lock of the `Inflight`."""
        if self._thread is None:
            name = f"laneway-receive-{self._buffer.sqs_queue.name}"
            self._thread = threading.Thread(target=self._main, name=name, daemon=True)
            self._thread.start()

    def receive(self, limit: int, wait_s: int) -> int:
        """Receive once, and put the messages into the buffer. Returns their number."""
        with self._asking:
            lease_s = self._inflight.lease_s()
            messages = self._ask(min(limit, BATCH), wait_s, lease_s or LEASE_S)
            if messages and self._inflight.lease_s() is None:
                self._intake.give_back(messages)
            elif messages:
                self._intake.take_in(self._buffer, messages)
            return len(messages)

    # -- the thread ------------------------------------------------------------------------------------

    def _main(self) -> None:
        while self._await_demand():
            ready = len(self._buffer.ready)
            limit = self._buffer.demand - ready
            wait_s = self._account.settings.wait_s
            wait_s = min(wait_s, SHORT_WAIT_S) if ready else wait_s
            try:
                count = self.receive(max(1, limit), wait_s)
            except MissingError as error:
                self._account.queues.forget(self._buffer.sqs_queue)
                self._failed(error)
            except Exception as error:
                self._failed(error)
            else:
                self._succeeded(count, ready)

    def _await_demand(self) -> bool:
        """Wait until messages are wanted. Meanwhile give back those that no worker wants. False: there is no worker."""
        changed = self._inflight.changed
        while True:
            with changed:
                if self._inflight.lease_s() is None:
                    self._thread = None
                    return False
                if self._backoff_s:
                    changed.wait_for(lambda: self._inflight.lease_s() is None, self._backoff_s)
                if self._is_wanted():
                    return True
                stale = self._inflight.take_back(self._buffer, since=self._account.clock.monotonic() - STALE_S)
                if not stale:
                    changed.wait(self._patience_s())
                    continue
            self.give_back([held.message for held in stale])

    def give_back(self, messages: list[Message]) -> None:
        """Give messages back. If that fails, SQS makes them visible again when their visibility timeout ends."""
        try:
            self._intake.give_back(messages)
        except Exception as error:
            self._failed(error)

    def _is_wanted(self) -> bool:
        buffer = self._buffer
        # A turn that claims nothing, or an empty answer, may have set the demand to 0 while another thread waits.
        if len(buffer.ready) >= max(buffer.demand, min(buffer.waits, 1)):
            return False
        if self._heartbeat.paused(buffer.sqs_queue.queue):
            return False
        recent_s = RECENT_S if buffer.error is None else PATIENT_S
        return buffer.waits > 0 or self._account.clock.monotonic() - buffer.asked_at < recent_s

    def _patience_s(self) -> float | None:
        """Seconds until the oldest ready messages are stale; None if nothing is ready."""
        if not self._buffer.ready:
            return None
        return max(0.01, self._buffer.ready[0].at + STALE_S - self._account.clock.monotonic())

    def _failed(self, error: Exception) -> None:
        first, most = BACKOFF_S
        self._backoff_s = min(max(first, self._backoff_s * 2), most)
        with self._inflight.changed:
            self._buffer.error = error
            self._inflight.changed.notify_all()

    def _succeeded(self, count: int, ready: int) -> None:
        self._backoff_s = 0.0
        with self._inflight.changed:
            if self._buffer.error is not None:
                self._buffer.error = None
                self._inflight.changed.notify_all()
            if not count and ready:
                # There is no more at present. It asks again when the ready messages have been taken.
                self._buffer.demand = min(self._buffer.demand, len(self._buffer.ready))

    # -- the request -----------------------------------------------------------------------------------

    def _ask(self, limit: int, wait_s: int, lease_s: float) -> list[Message]:
        sqs_queue, hide_s = self._buffer.sqs_queue, max(1, math.ceil(lease_s))
        options: dict[str, Any] = {}
        if sqs_queue.fifo:
            # If the answer is lost, the same id gets the same messages. Otherwise they would stay hidden.
            self._attempt_id = self._attempt_id or new_id()
            options["ReceiveRequestAttemptId"] = self._attempt_id
        began = self._account.clock.monotonic()
        try:
            answer = self._account.clients.sqs(
                "receive_message",
                QueueUrl=sqs_queue.url,
                MaxNumberOfMessages=limit,
                WaitTimeSeconds=wait_s,
                VisibilityTimeout=hide_s,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
                **options,
            )
        except BrokerRefusedError:  # if SQS is away it may have been carried out: then the id is used again
            self._attempt_id = ""
            raise
        self._attempt_id = ""
        # SQS waits for `wait_s` at most. If the answer took longer, the rest was the way back.
        received = min(self._account.clock.monotonic(), began + wait_s + 1.0)
        return [read(sqs_queue, raw, received, float(hide_s)) for raw in answer.get("Messages") or ()]


class Receivers:
    """Receives messages for one process: in threads or, if `inline`, in the caller's thread and without waiting."""

    def __init__(
        self,
        account: Account,
        inflight: Inflight,
        intake: Intake,
        heartbeat: Heartbeat,
        *,
        inline: bool,
    ) -> None:
        self._account = account
        self._inflight = inflight
        self._intake = intake
        self._heartbeat = heartbeat
        self._inline = inline
        self._receivers: dict[str, Receiver] = {}
        self._nudges = 0

    def open(self, queue: str) -> list[QueueBuffer]:
        """The buffers of a queue: of its existing SQS queues, and of deleted ones with messages left."""
        buffers = [self._buffer(sqs_queue) for sqs_queue in self._account.queues.existing(queue)]
        gone = [buffer for buffer in self._inflight.of(queue) if buffer not in buffers]
        return buffers + [buffer for buffer in gone if buffer.ready]

    def ask(self, buffers: Collection[QueueBuffer], demand: int) -> None:
        """Ask for `demand` messages in each buffer. They are kept ready for a moment."""
        with self._inflight.changed:
            now = self._account.clock.monotonic()
            for buffer in buffers:
                buffer.demand = demand
                if demand:
                    buffer.asked_at = now
                    if not self._inline:
                        self._receivers[buffer.sqs_queue.url].start()
            self._inflight.changed.notify_all()

    def receive(self, buffers: Collection[QueueBuffer], limit: int) -> None:
        """Receive in this thread, until there is enough or no more."""
        for buffer in buffers:
            receiver = self._receivers[buffer.sqs_queue.url]
            while len(buffer.ready) < limit and receiver.receive(BATCH, 0):
                pass

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Wait until a queue has ready messages or an error. Returns those queues. A paused queue may be resumed."""
        opened = {queue: self.open(queue) for queue in queues}
        buffers = [buffer for each in opened.values() for buffer in each]
        if self._inline:
            self.receive([buffer for buffer in buffers if not self._heartbeat.paused(buffer.sqs_queue.queue)], 1)
            timeout_s = 0.0
        deadline = time.monotonic() + timeout_s
        changed = self._inflight.changed
        with changed:
            nudges = self._nudges
            for buffer in buffers:
                buffer.waits += 1
                self.ask([buffer], max(1, buffer.demand))
            try:
                while True:
                    ready = {queue for queue, each in opened.items() if self._calls_for_a_turn(queue, each)}
                    left_s = deadline - time.monotonic()
                    if ready or nudges != self._nudges or left_s <= 0:
                        return ready
                    changed.wait(min(left_s, threading.TIMEOUT_MAX))
            finally:
                for buffer in buffers:
                    buffer.waits -= 1
                    buffer.asked_at = self._account.clock.monotonic()

    def nudge(self) -> None:
        """End every wait now."""
        with self._inflight.changed:
            self._nudges += 1
            self._inflight.changed.notify_all()

    def _calls_for_a_turn(self, queue: str, buffers: Collection[QueueBuffer]) -> bool:
        return not self._heartbeat.paused(queue) and any(buffer.ready or buffer.error is not None for buffer in buffers)

    def _buffer(self, sqs_queue: SQSQueue) -> QueueBuffer:
        with self._inflight.changed:
            buffer = self._inflight.buffer(sqs_queue)
            if sqs_queue.url not in self._receivers:
                self._receivers[sqs_queue.url] = Receiver(
                    self._account, buffer, self._inflight, self._intake, self._heartbeat
                )
            return buffer
