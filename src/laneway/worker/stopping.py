"""How a worker is told to stop, and how urgently: by a signal, by its supervisor, or by the program that it is in."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

#: While it waits for what runs, it says so at first after so long, and then this often.
FIRST_SAY_S, SAY_S = 2.0, 5.0


class Stopping:
    """What was asked of a worker."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        #: Not to wait for anything any more.
        self.given_up = threading.Event()
        #: To stop when everything has finished, however long that takes; until somebody is more urgent.
        self._retiring = False
        self._hurry = threading.Event()
        self._interrupts = 0

    def signalled(self, number: int) -> None:
        """TERM, INT or USR1 has come; a second INT cannot wait."""
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self.given_up.set()
        self._hurry.set()
        self.asked.set()

    def give_up(self) -> None:
        """Leave what runs to others, now."""
        self.given_up.set()
        self._hurry.set()
        self.asked.set()

    def retire(self) -> None:
        """Finish without haste: another takes this one's place."""
        self._retiring = True
        self.asked.set()

    def reset(self) -> None:
        """Nothing is asked any more: it may be started again."""
        self.asked.clear()
        self.given_up.clear()
        self._hurry.clear()
        self._retiring = False
        self._interrupts = 0

    def wait(self, unfinished: Callable[[], bool], timeout_s: float, say: Callable[[float | None], None]) -> None:
        """Let what runs finish, and say from time to time how long it still may take; None: any time."""
        now = time.monotonic()
        say_at, deadline = now + FIRST_SAY_S, float("inf")
        while unfinished() and now < deadline and not self.given_up.wait(0.005):
            if deadline == float("inf") and (not self._retiring or self._hurry.is_set()):
                deadline = now + timeout_s
            if now >= say_at:
                say_at = now + SAY_S
                say(None if deadline == float("inf") else deadline - now)
            now = time.monotonic()
