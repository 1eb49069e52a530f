"""RedisClient, the interface to a server or a Cluster; Server, one server that retries short outages.

Every call must be safe to repeat. After a lost connection the client cannot know whether the call was carried out,
so it repeats the call, a few times within about a second. A server that has never answered gets no second try: its
URL is more likely to be wrong. Scripts are called by their hash; a server that does not know a script gets its text.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from ....errors import BrokerAwayError, BrokerError, BrokerRefusedError
from ....failpoints import armed, reach
from ..script import Script
from . import redis_py
from .connections import Address, Command, Connection, Connections, Key, receive, send
from .errors import explain, is_away, is_lost, is_unknown_script
from .tls_probe import mistake
from .wait import BlockingWaits, wait_for_any

if TYPE_CHECKING:
    import redis

Argument = bytes | str | int | float
#: A script, its keys and its arguments.
Call = tuple[Script, Sequence[Key], Sequence[Argument]]


def nothing() -> None:
    """The default `on_sent`: does nothing when a call has been sent."""


class RedisClient(ABC):
    """A server or a Cluster, for any number of threads.

    Every call must be safe to repeat. After a lost connection the client cannot know whether the call was carried out,
    so it repeats the call, a few times within about a second.
    """

    is_cluster: bool
    #: The name of the server in errors and logs; holds no secrets.
    place: str

    def run(
        self, script: Script, keys: Sequence[Key], args: Sequence[Argument], on_sent: Callable[[], None] = nothing
    ) -> Any:
        """The script's answer. Calls `on_sent`, once or more, before it waits for the answer."""
        answer = self._exchange_telling(on_sent, [("EVALSHA", script.sha, len(keys), *keys, *args)])[0]
        if isinstance(answer, Exception) and is_unknown_script(answer):
            # The server restarted, or its scripts were flushed: EVAL stores it again.
            answer = self.exchange([("EVAL", script.text, len(keys), *keys, *args)])[0]
        if isinstance(answer, Exception):
            raise explain(answer, self.place) from answer
        return answer

    def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """The answers of many scripts, sent at once. Raises the first error when all have been run.

        On one server they run in their order, except scripts that Redis did not know yet: these run after the rest.
        """
        return self._good(self._run_all(calls))

    def try_all(self, calls: Sequence[Call]) -> list[Any]:
        """Like `run_all`, but with a BrokerError in place of each answer that failed."""
        try:
            answers = self._run_all(calls)
        except BrokerError as error:
            return [error] * len(calls)
        return [explain(answer, self.place) if isinstance(answer, Exception) else answer for answer in answers]

    def _run_all(self, calls: Sequence[Call]) -> list[Any]:
        answers = self.exchange([("EVALSHA", script.sha, len(keys), *keys, *args) for script, keys, args in calls])
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, Exception) and is_unknown_script(answer)]
        if unknown:
            known = self.exchange(
                [("EVAL", script.text, len(keys), *keys, *args) for script, keys, args in (calls[n] for n in unknown)]
            )
            for n, answer in zip(unknown, known, strict=True):
                answers[n] = answer
        return answers

    def run_each(self, calls: Iterable[Call]) -> Iterator[Any]:
        """The answers of scripts, one after the other, as `calls` yields them."""
        for script, keys, args in calls:
            yield self.run(script, keys, args)

    def do(self, *command: Argument) -> Any:
        """The answer to one command. The first argument of the command is its key."""
        return self._good(self.exchange([command]))[0]

    def do_all(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to many commands, sent at once. Raises the first error when all have been carried out."""
        return self._good(self.exchange(commands))

    def _good(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise explain(answer, self.place) from answer
        return answers

    @abstractmethod
    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands, with each error reply in its place. Repeats commands that a repeat may help."""

    def _exchange_telling(self, on_sent: Callable[[], None], commands: Sequence[Command]) -> list[Any]:
        """Like `exchange`. Calls `on_sent` before it waits for the answers; on a Cluster before anything is sent."""
        on_sent()
        return self.exchange(commands)

    @abstractmethod
    def servers(self) -> list[Server]:
        """Every server that holds a part of the data."""

    def replicas(self) -> list[Server]:
        """Every server that is known to be a replica."""
        return []

    @abstractmethod
    def wait(self, keys: Sequence[Key], timeout_s: float, unless: Callable[[], bool] | None = None) -> set[bytes]:
        """The keys of lists from which an element was taken; none after `timeout_s`, or when nudged.

        `unless` is called when a nudge can no longer be missed. If it returns true, there is no wait.
        """

    @abstractmethod
    def nudge(self) -> None:
        """End every `wait` now."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections; the next call opens new ones."""


#: How many calls may be sent ahead of the oldest unanswered one.
AHEAD = 3
#: Seconds between the tries of a call. Each pause is lengthened at random by up to half.
PAUSES_S = (0.1, 0.4)
#: A call that would take longer than this many seconds is not tried again.
PATIENCE_S = 1.0


class Server(RedisClient):
    """One Redis server."""

    is_cluster = False

    def __init__(self, address: Address, *, pool: int = 5, pool_timeout_s: float = 5.0, guard_s: float = 5.0) -> None:
        self.place = address.place
        self.connections = Connections(address, pool, pool_timeout_s)
        self.waits = BlockingWaits(address, guard_s)
        #: Whether the server has ever answered. If not, the URL is more likely to be wrong than the server to be down.
        self._known = False
        self._client: Any = None

    @classmethod
    def of(cls, client: redis.Redis, *, pool: int = 5, pool_timeout_s: float = 5.0) -> Server:
        """The server of an existing redis-py client, with connections of our own."""
        theirs = client.connection_pool
        address = Address.of(theirs.connection_class, theirs.connection_kwargs)
        server = cls(address, pool=pool, pool_timeout_s=pool_timeout_s)
        server._client = client  # keeps the pool alive: connections of a Sentinel ask their pool for the address
        return server

    def __repr__(self) -> str:
        return f"<Server: {self.place}>"

    def servers(self) -> list[Server]:
        return [self]

    def wait(self, keys: Sequence[Key], timeout_s: float, unless: Callable[[], bool] | None = None) -> set[bytes]:
        return wait_for_any([(self.waits, keys)], timeout_s, unless)

    def nudge(self) -> None:
        self.waits.nudge()

    def close(self) -> None:
        self.waits.close()
        self.connections.close()

    def exchange(
        self, commands: Sequence[Command], *, patient: bool = True, on_sent: Callable[[], None] = nothing
    ) -> list[Any]:
        """The answers to commands, with each error reply in its place. Without `patient` there is no second try."""
        if not commands:
            return []
        began = time.monotonic()
        patient = patient and self._known
        answers = self._deliver(commands, began, patient, on_sent)
        pauses = None
        while again := [n for n, answer in enumerate(answers) if isinstance(answer, Exception) and is_away(answer)]:
            pauses = pauses or pauses_from(began, patient)
            if not next(pauses, False):
                break
            self.connections.drop_idle()  # if the server is a replica now, its name may resolve to another server
            for n, answer in zip(again, self._deliver([commands[n] for n in again], began, patient), strict=True):
                answers[n] = answer
        return answers

    def _exchange_telling(self, on_sent: Callable[[], None], commands: Sequence[Command]) -> list[Any]:
        return self.exchange(commands, on_sent=on_sent)

    def run_each(self, calls: Iterable[Call]) -> Iterator[Any]:
        """The answers of scripts, in their order. Builds and sends the next calls while Redis runs the ones before."""
        calls, sent = iter(calls), deque[Call]()
        connection, _ = self.connections.take()
        try:
            for call in calls:
                sent.append(call)
                script, keys, args = call
                send(connection, [("EVALSHA", script.sha, len(keys), *keys, *args)])
                if len(sent) > AHEAD:
                    yield from self._next(connection, sent)
            while sent:
                yield from self._next(connection, sent)
        except (redis_py.RedisError, OSError):  # every unanswered call is run again below, with retries
            self.connections.drop(connection)
        except BaseException:
            self.connections.drop(connection)  # answers may still arrive on it
            raise
        else:
            self.connections.give(connection)
            return
        for script, keys, args in chain(sent, calls):
            yield self.run(script, keys, args)

    def _next(self, connection: Connection, sent: deque[Call]) -> Iterator[Any]:
        """The next answer. If that call failed, the answers of all sent calls: no call may overtake a repeated one."""
        answers = receive(connection, 1)
        if isinstance(answers[0], Exception) or answers[0][0] == b"stale":
            answers += receive(connection, len(sent) - 1)
        for answer in answers:
            call = sent.popleft()
            yield self.run(*call) if isinstance(answer, Exception) else answer

    def _deliver(
        self, commands: Sequence[Command], began: float, patient: bool, on_sent: Callable[[], None] = nothing
    ) -> list[Any]:
        pauses, sent = None, False
        while True:
            connection, used = self.connections.take()
            try:
                if not used:
                    on_sent()  # connecting may take long
                    connection.connect()
                sent = True
                send(connection, commands)
                on_sent()
                if armed:
                    reach("inside call")
                answers = receive(connection, len(commands))
            except (redis_py.RedisError, OSError) as error:
                self.connections.drop(connection)
                on_sent()
                if not is_lost(error):
                    raise self._explain(error, sent) from error
                self.connections.drop_idle()  # the idle connections are as old as this one
                first, pauses = pauses is None, pauses or pauses_from(began, patient)
                if not (first and is_stale(error, used)) and not next(pauses, False):
                    raise self._explain(error, sent) from error
            except BaseException:
                self.connections.drop(connection)  # an answer may still arrive on it
                raise
            else:
                self.connections.give(connection)
                self._known = True
                return answers

    def _explain(self, error: Exception, sent: bool) -> BrokerError:
        """The error to raise.

        If the commands were sent to a known server, they may have been carried out, whatever a later try met.
        """
        found = mistake(self.connections.address, error, probe=not self._known) if is_lost(error) else None
        explained = explain(error, self.place) if found is None else BrokerRefusedError(found)
        return BrokerAwayError(str(explained)) if sent and self._known else explained


def is_stale(error: Exception, used: bool) -> bool:
    """Whether the connection may merely have been closed while it was idle, which says nothing about the server."""
    return used and not isinstance(error, (TimeoutError, redis_py.TimeoutError))


def pauses_from(began: float, patient: bool = True) -> Iterator[bool]:
    """Sleeps before each further try, and yields True. Ends when no further try is allowed."""
    for pause in PAUSES_S if patient else ():
        pause *= random.uniform(1.0, 1.5)
        if time.monotonic() + pause - began > PATIENCE_S:
            return
        time.sleep(pause)
        yield True
