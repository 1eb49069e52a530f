"""How scripts and commands are called, on one server as on a Cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from redis.exceptions import NoScriptError

from ....errors import BrokerError
from ..script import Script
from .connections import Command
from .errors import explain

if TYPE_CHECKING:
    from .server import Server

Key = bytes | str
Argument = bytes | str | int | float
#: A script, its keys and its arguments.
Call = tuple[Script, Sequence[Key], Sequence[Argument]]


def nothing() -> None:
    """What is done when a call is on its way, unless somebody has something to do then."""


class Caller(ABC):
    """A server, or a Cluster of them, for any number of threads.

    Whatever is called must be harmless when it is called again: after a lost connection nobody knows whether a call
    was carried out, and so it is made again, a few times within about a second.
    """

    is_cluster: bool
    #: What it is called in errors and logs; holds no secrets.
    place: str

    def run(
        self, script: Script, keys: Sequence[Key], args: Sequence[Argument], on_sent: Callable[[], None] = nothing
    ) -> Any:
        """The script's answer; `on_sent` is called before it is waited for, once or more."""
        answer = self._exchange_telling(on_sent, [("EVALSHA", script.sha, len(keys), *keys, *args)])[0]
        if isinstance(answer, NoScriptError):  # restarted, or its scripts were flushed: EVAL stores it again
            answer = self.exchange([("EVAL", script.text, len(keys), *keys, *args)])[0]
        if isinstance(answer, Exception):
            raise explain(answer, self.place) from answer
        return answer

    def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """The answers of many scripts, sent at once; the first error is raised when all have been run.

        On one server they run in their order, but for those that Redis did not know yet: they run after the others.
        """
        return self._good(self._run_all(calls))

    def try_all(self, calls: Sequence[Call]) -> list[Any]:
        """The same, with a BrokerError in place of each answer that did not come."""
        try:
            answers = self._run_all(calls)
        except BrokerError as error:
            return [error] * len(calls)
        return [explain(answer, self.place) if isinstance(answer, Exception) else answer for answer in answers]

    def _run_all(self, calls: Sequence[Call]) -> list[Any]:
        answers = self.exchange([("EVALSHA", script.sha, len(keys), *keys, *args) for script, keys, args in calls])
        if unknown := [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]:
            known = self.exchange(
                [("EVAL", script.text, len(keys), *keys, *args) for script, keys, args in (calls[n] for n in unknown)]
            )
            for n, answer in zip(unknown, known, strict=True):
                answers[n] = answer
        return answers

    def run_each(self, calls: Iterable[Call]) -> Iterator[Any]:
        """The answers of scripts, one after the other, as they are made."""
        for script, keys, args in calls:
            yield self.run(script, keys, args)

    def do(self, *command: Argument) -> Any:
        """The answer to one command; its first argument is its key."""
        return self._good(self.exchange([command]))[0]

    def do_all(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to many commands, sent at once; the first error is raised when all have been carried out."""
        return self._good(self.exchange(commands))

    def _good(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise explain(answer, self.place) from answer
        return answers

    @abstractmethod
    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands, an error reply in its place; what a repeat may help has been made again."""

    def _exchange_telling(self, on_sent: Callable[[], None], commands: Sequence[Command]) -> list[Any]:
        """The same, and `on_sent` is called before the answers are waited for: on a Cluster before anything is sent."""
        on_sent()
        return self.exchange(commands)

    @abstractmethod
    def servers(self) -> list[Server]:
        """Every server that holds a part of the data."""

    def replicas(self) -> list[Server]:
        """Every server that is known to hold a copy only."""
        return []

    @abstractmethod
    def wait(self, keys: Sequence[Key], timeout_s: float, unless: Callable[[], bool] | None = None) -> bytes | None:
        """The key of a list from which an element was taken; None after `timeout_s`, or when nudged.

        `unless` is asked when a nudge can no longer be missed: if it is true, there is no wait.
        """

    @abstractmethod
    def nudge(self) -> None:
        """End every `wait` now."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
