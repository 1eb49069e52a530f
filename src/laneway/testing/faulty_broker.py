"""FaultyBroker: loses requests and answers on demand, to test how the rest of Laneway copes.

faulty = FaultyBroker(SQLiteBroker(path))
faulty.lose_request("turn")        # the next turn never reaches the broker
faulty.lose_answer("turn")         # the next turn is carried out, and its answer lost
faulty.away = True                 # nothing gets through until it is False again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from ..broker import Broker
from ..capabilities import is_remote
from ..errors import BrokerAwayError

#: Verbs that concern this process alone, and so cannot be lost.
LOCAL = ("nudge", "close")


class FaultyBroker:
    """Passes every verb on to another broker, unless told to fail."""

    def __init__(self, broker: Broker) -> None:
        self.inner = broker
        self.max_body = broker.max_body
        self.shared = broker.shared
        self.remote = is_remote(broker)
        #: While True, nothing gets through.
        self.away = False
        #: How often each verb was called.
        self.calls: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()

    def lose_request(self, verb: str, times: int = 1) -> None:
        """Let the next calls of `verb` fail before they reach the broker."""
        self._requests[verb] += times

    def lose_answer(self, verb: str, times: int = 1) -> None:
        """Let the next calls of `verb` be carried out and then fail."""
        self._answers[verb] += times

    def __getattr__(self, verb: str) -> Any:
        target = getattr(self.inner, verb)
        if verb.startswith("_") or verb in LOCAL or not callable(target):
            return target
        return self._wrapped(verb, target)

    def _wrapped(self, verb: str, target: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[verb] += 1
            if self.away:
                raise BrokerAwayError("The broker is away, as it was told to be.")
            if self._requests[verb] > 0:
                self._requests[verb] -= 1
                raise BrokerAwayError(f"The request {verb} was lost, as it was told to be.")
            answer = target(*args, **kwargs)
            if self._answers[verb] > 0:
                self._answers[verb] -= 1
                raise BrokerAwayError(f"The answer to {verb} was lost, as it was told to be.")
            return answer

        return call
