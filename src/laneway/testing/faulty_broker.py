"""FaultyBroker: loses requests and answers on demand, to test how the rest of Laneway copes.

faulty = FaultyBroker(SQLiteBroker(path))
faulty.lose_request("turn")        # the next turn never reaches the broker
faulty.lose_answer("turn")         # the next turn is carried out, and its answer lost
faulty.away = True                 # nothing gets through until it is False again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from ..broker import TIERS, AbsentTier, CoreBroker, complete
from ..errors import BrokerAwayError

#: Verbs that concern this process alone, and so cannot be lost.
LOCAL = ("nudge", "close", "duties")


class FaultyBroker:
    """Passes every verb on to another broker, unless a test makes it fail. A tier's verb is named without its tier."""

    def __init__(self, broker: CoreBroker) -> None:
        self.inner = complete(broker)
        self.capabilities = broker.capabilities
        #: While True, nothing gets through.
        self.away = False
        #: How often each verb was called.
        self.calls: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()
        for name in TIERS:
            tier = getattr(self.inner, name)
            setattr(self, name, tier if isinstance(tier, AbsentTier) else _FaultyTier(self, tier))

    def lose_request(self, verb: str, times: int = 1) -> None:
        """Let the next calls of `verb` fail before they reach the broker."""
        self._requests[verb] += times

    def lose_answer(self, verb: str, times: int = 1) -> None:
        """Let the next calls of `verb` be carried out and then fail."""
        self._answers[verb] += times

    def __getattr__(self, name: str) -> Any:
        return self.passed_on(self.inner, name)

    def passed_on(self, part: Any, verb: str) -> Any:
        """A verb of the broker or of a tier, which may fail."""
        target = getattr(part, verb)
        if verb.startswith("_") or verb in LOCAL or not callable(target):
            return target
        return partial(self._call, verb, target)

    def _call(self, verb: str, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls[verb] += 1
        if self.away:
            raise BrokerAwayError("The broker is away, as the test wants it.")
        if self._requests[verb] > 0:
            self._requests[verb] -= 1
            raise BrokerAwayError(f"The request {verb} was lost, as the test wants it.")
        answer = target(*args, **kwargs)
        if self._answers[verb] > 0:
            self._answers[verb] -= 1
            raise BrokerAwayError(f"The answer to {verb} was lost, as the test wants it.")
        return answer


class _FaultyTier:
    """A tier of a FaultyBroker."""

    def __init__(self, faulty: FaultyBroker, tier: Any) -> None:
        self._faulty = faulty
        self._tier = tier

    def __getattr__(self, verb: str) -> Any:
        return self._faulty.passed_on(self._tier, verb)

    @property
    def auto_create(self) -> bool:
        """That of the health tier, which the app sets."""
        return bool(self._tier.auto_create)

    @auto_create.setter
    def auto_create(self, on: bool) -> None:
        self._tier.auto_create = on
