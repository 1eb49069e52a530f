"""Calls the broker with a deadline, for callers that cannot wait until the call returns by itself.

A call cannot be cancelled, so it runs in a thread of its own. After the deadline that thread is left behind, and the
call may still take effect. `call_with_deadline` never repeats a call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import BrokerAwayError

#: Whoever waits for longer than this says so.
SAY_S = 2.0
#: However urgent it is, a broker gets so long: one that is only busy is not away.
LEAST_S = 1.0
_LOOK_S = 0.02


def call_with_deadline(
    call: Callable[[], Any],
    *,
    timeout_s: float = float("inf"),
    unless: Callable[[], bool] = lambda: False,
    say: Callable[[], object] = lambda: None,
) -> Any:
    """What the call returns or raises; BrokerAwayError if that is not known by `timeout_s`, or `unless` has come true.

    `say` is called once, when it takes long.
    """
    outcome: list[tuple[Any, BaseException | None]] = []
    ended = threading.Event()

    def ask() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))
        ended.set()

    began = time.monotonic()
    threading.Thread(target=ask, name="laneway-asking", daemon=True).start()
    said = False
    while not ended.wait(_LOOK_S):
        taken_s = time.monotonic() - began
        if taken_s >= timeout_s or (taken_s >= LEAST_S and unless()):
            raise BrokerAwayError(f"It has not answered for {taken_s:.1f} s.")
        if taken_s >= SAY_S and not said:
            said = True
            say()
    answer, error = outcome[0]
    if error is not None:
        raise error
    return answer
