"""The receivers of one process, one for each SQS queue that is served; and waiting for what they bring.

Owns what is asked of them and how long somebody waits. How messages are received is `receiving.py`'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from ....clock import Clock
from ..clients import Clients
from .inflight import Buffer, Stock
from .intake import Arrivals
from .message import Channel
from .queues import Channels
from .receive import Receiver
from .visibility import BATCH


class Receivers:
    """Has messages be received for one process: in threads or, `inline`, when it is told to, without waiting."""

    def __init__(
        self,
        stock: Stock,
        arrivals: Arrivals,
        clients: Clients,
        channels: Channels,
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

    def open(self, queue: str) -> list[Buffer]:
        """The buffers of a queue: of those SQS queues that there are, or of which something is left."""
        buffers = [self._buffer(channel) for channel in self._channels.existing(queue)]
        gone = [buffer for buffer in self._stock.of(queue) if buffer not in buffers]
        return buffers + [buffer for buffer in gone if buffer.ready]

    def ask(self, buffers: Collection[Buffer], demand: int) -> None:
        """Have so much be ready, and be kept ready for a moment."""
        with self._stock.changed:
            now = self._clock.monotonic()
            for buffer in buffers:
                buffer.demand = demand
                if demand:
                    buffer.asked_at = now
                    if not self._inline:
                        self._receivers[buffer.channel.url].start()
            self._stock.changed.notify_all()

    def receive(self, buffers: Collection[Buffer], limit: int) -> None:
        """Receive here and now, until there is enough or no more."""
        for buffer in buffers:
            receiver = self._receivers[buffer.channel.url]
            while len(buffer.ready) < limit and receiver.receive(BATCH, 0):
                pass

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Wait until something of these queues is ready, or cannot be received; returns those queues."""
        opened = {queue: self.open(queue) for queue in queues if not self._paused(queue)}
        buffers = [buffer for each in opened.values() for buffer in each]
        if self._inline:
            self.receive(buffers, 1)
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
                    ready = {queue for queue, each in opened.items() if any(map(_calls_for_a_turn, each))}
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

    def _buffer(self, channel: Channel) -> Buffer:
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


def _calls_for_a_turn(buffer: Buffer) -> bool:
    return bool(buffer.ready) or buffer.error is not None
