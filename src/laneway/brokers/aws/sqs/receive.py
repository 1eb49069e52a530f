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
from collections.abc import Callable, Collection
from typing import Any

from ....clock import Clock
from ....errors import BrokerRefusedError
from ....ids import new_id
from ..clients import Clients
from ..errors import MissingError
from ..settings import BATCH
from .inflight import Inflight, QueueBuffer
from .intake import Intake
from .message import Message, SQSQueue, read
from .queues import SQSQueues

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
        buffer: QueueBuffer,
        stock: Inflight,
        arrivals: Intake,
        clients: Clients,
        channels: SQSQueues,
        clock: Clock,
        *,
        lease_s: Callable[[], float | None],
        paused: Callable[[str], bool],
        wait_s: int,
    ) -> None:
        self._buffer = buffer
        self._stock = stock
        self._arrivals = arrivals
        self._clients = clients
        self._channels = channels
        self._clock = clock
        #: For how long messages are hidden; None: there is no worker to run them.
        self._lease_s = lease_s
        self._paused = paused
        self._wait_s = wait_s
        self._attempt_id = ""
        self._backoff_s = 0.0
        self._thread: threading.Thread | None = None
        #: One request at a time: those of a FIFO queue must not overtake each other.
        self._asking = threading.Lock()

    # -- for callers -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Ensure that the thread runs. The caller holds the lock of the `Inflight`."""
        if self._thread is None:
            name = f"laneway-receive-{self._buffer.channel.name}"
            self._thread = threading.Thread(target=self._main, name=name, daemon=True)
            self._thread.start()

    def receive(self, limit: int, wait_s: int) -> int:
        """Receive once, and put the messages into the buffer. Returns their number."""
        with self._asking:
            lease_s = self._lease_s()
            messages = self._ask(min(limit, BATCH), wait_s, lease_s or 30.0)
            if messages and self._lease_s() is None:
                self._arrivals.give_back(messages)
            elif messages:
                self._arrivals.take_in(self._buffer, messages)
            return len(messages)

    # -- the thread ------------------------------------------------------------------------------------

    def _main(self) -> None:
        while self._await_demand():
            ready = len(self._buffer.ready)
            limit = self._buffer.demand - ready
            wait_s = min(self._wait_s, SHORT_WAIT_S) if ready else self._wait_s
            try:
                count = self.receive(max(1, limit), wait_s)
            except MissingError as error:
                self._channels.forget(self._buffer.channel)
                self._failed(error)
            except Exception as error:
                self._failed(error)
            else:
                self._succeeded(count, ready)

    def _await_demand(self) -> bool:
        """Wait until messages are wanted. Meanwhile give back those that no worker wants. False: there is no worker."""
        changed = self._stock.changed
        while True:
            with changed:
                if self._lease_s() is None:
                    self._thread = None
                    return False
                if self._backoff_s:
                    changed.wait_for(lambda: self._lease_s() is None, self._backoff_s)
                if self._is_wanted():
                    return True
                stale = self._stock.take_back(self._buffer, since=self._clock.monotonic() - STALE_S)
                if not stale:
                    changed.wait(self._patience_s())
                    continue
            self.give_back([held.message for held in stale])

    def give_back(self, messages: list[Message]) -> None:
        """Give messages back. If that fails, SQS makes them visible again when their visibility timeout ends."""
        try:
            self._arrivals.give_back(messages)
        except Exception as error:
            self._failed(error)

    def _is_wanted(self) -> bool:
        buffer = self._buffer
        # A turn that claims nothing, or an empty answer, may have set the demand to 0 while another thread waits.
        if len(buffer.ready) >= max(buffer.demand, min(buffer.waits, 1)) or self._paused(buffer.channel.queue):
            return False
        recent_s = RECENT_S if buffer.error is None else PATIENT_S
        return buffer.waits > 0 or self._clock.monotonic() - buffer.asked_at < recent_s

    def _patience_s(self) -> float | None:
        """Seconds until the oldest ready messages are stale; None if nothing is ready."""
        if not self._buffer.ready:
            return None
        return max(0.01, self._buffer.ready[0].at + STALE_S - self._clock.monotonic())

    def _failed(self, error: Exception) -> None:
        first, most = BACKOFF_S
        self._backoff_s = min(max(first, self._backoff_s * 2), most)
        with self._stock.changed:
            self._buffer.error = error
            self._stock.changed.notify_all()

    def _succeeded(self, count: int, ready: int) -> None:
        self._backoff_s = 0.0
        with self._stock.changed:
            if self._buffer.error is not None:
                self._buffer.error = None
                self._stock.changed.notify_all()
            if not count and ready:
                # There is no more at present. It asks again when the ready messages have been taken.
                self._buffer.demand = min(self._buffer.demand, len(self._buffer.ready))

    # -- the request -----------------------------------------------------------------------------------

    def _ask(self, limit: int, wait_s: int, lease_s: float) -> list[Message]:
        channel, hide_s = self._buffer.channel, max(1, math.ceil(lease_s))
        options: dict[str, Any] = {}
        if channel.fifo:
            # If the answer is lost, the same id gets the same messages. Otherwise they would stay hidden.
            self._attempt_id = self._attempt_id or new_id()
            options["ReceiveRequestAttemptId"] = self._attempt_id
        began = self._clock.monotonic()
        try:
            answer = self._clients.sqs(
                "receive_message",
                QueueUrl=channel.url,
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
        received = min(self._clock.monotonic(), began + wait_s + 1.0)
        return [read(channel, raw, received, float(hide_s)) for raw in answer.get("Messages") or ()]


class Receivers:
    """Receives messages for one process: in threads or, if `inline`, in the caller's thread and without waiting."""

    def __init__(
        self,
        stock: Inflight,
        arrivals: Intake,
        clients: Clients,
        channels: SQSQueues,
        clock: Clock,
        *,
        lease_s: Callable[[], float | None],
        paused: Callable[[str], bool],
        wait_s: int,
        inline: bool,
    ) -> None:
        self._stock = stock
        self._arrivals = arrivals
        self._clients = clients
        self._channels = channels
        self._clock = clock
        self._lease_s = lease_s
        self._paused = paused
        self._wait_s = wait_s
        self._inline = inline
        self._receivers: dict[str, Receiver] = {}
        self._nudges = 0

    def open(self, queue: str) -> list[QueueBuffer]:
        """The buffers of a queue: of its existing SQS queues, and of deleted ones with messages left."""
        buffers = [self._buffer(channel) for channel in self._channels.existing(queue)]
        gone = [buffer for buffer in self._stock.of(queue) if buffer not in buffers]
        return buffers + [buffer for buffer in gone if buffer.ready]

    def ask(self, buffers: Collection[QueueBuffer], demand: int) -> None:
        """Ask for `demand` messages in each buffer. They are kept ready for a moment."""
        with self._stock.changed:
            now = self._clock.monotonic()
            for buffer in buffers:
                buffer.demand = demand
                if demand:
                    buffer.asked_at = now
                    if not self._inline:
                        self._receivers[buffer.channel.url].start()
            self._stock.changed.notify_all()

    def receive(self, buffers: Collection[QueueBuffer], limit: int) -> None:
        """Receive in this thread, until there is enough or no more."""
        for buffer in buffers:
            receiver = self._receivers[buffer.channel.url]
            while len(buffer.ready) < limit and receiver.receive(BATCH, 0):
                pass

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Wait until a queue has ready messages or an error. Returns those queues. A paused queue may be resumed."""
        opened = {queue: self.open(queue) for queue in queues}
        buffers = [buffer for each in opened.values() for buffer in each]
        if self._inline:
            self.receive([buffer for buffer in buffers if not self._paused(buffer.channel.queue)], 1)
            timeout_s = 0.0
        deadline = time.monotonic() + timeout_s
        changed = self._stock.changed
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
                    buffer.asked_at = self._clock.monotonic()

    def nudge(self) -> None:
        """End every wait now."""
        with self._stock.changed:
            self._nudges += 1
            self._stock.changed.notify_all()

    def resumed(self) -> None:
        """Let the receivers and the waits of this process notice that a queue is no longer paused."""
        with self._stock.changed:
            self._stock.changed.notify_all()

    def _calls_for_a_turn(self, queue: str, buffers: Collection[QueueBuffer]) -> bool:
        return not self._paused(queue) and any(buffer.ready or buffer.error is not None for buffer in buffers)

    def _buffer(self, channel: SQSQueue) -> QueueBuffer:
        with self._stock.changed:
            buffer = self._stock.buffer(channel)
            if channel.url not in self._receivers:
                self._receivers[channel.url] = Receiver(
                    buffer,
                    self._stock,
                    self._arrivals,
                    self._clients,
                    self._channels,
                    self._clock,
                    lease_s=self._lease_s,
                    paused=self._paused,
                    wait_s=self._wait_s,
                )
            return buffer
