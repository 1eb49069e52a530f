"""One Redis server: runs scripts and commands on it, and outlasts short trouble.

Whatever is run here must be harmless when it is run again: after a lost connection nobody knows whether a call was
carried out, and so it is made again, a few times within about a second. Only then is it the caller's trouble.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors
from redis.exceptions import NoScriptError, RedisError

from .connections import Address, Command, Connections, receive, send
from .scripts import Script
from .trouble import explain, is_away, is_lost
from .waiting import Waiting

if TYPE_CHECKING:
    import redis

#: A script, its keys and its arguments.
Call = tuple[Script, Sequence[bytes | str], Sequence[bytes | str | int | float]]

#: Seconds between the tries of a call; each is up to half as long again.
PAUSES_S = (0.1, 0.4)
#: A call that has taken so many seconds is not tried again.
PATIENCE_S = 1.0


class Server:
    """One Redis server, for any number of threads."""

    is_cluster = False

    def __init__(self, address: Address, *, pool: int = 5, pool_timeout_s: float = 5.0, guard_s: float = 5.0) -> None:
        self.place = address.place
        self.connections = Connections(address, pool, pool_timeout_s)
        self._waiting = Waiting(address, guard_s)
        #: Whether it has ever answered: if not, the URL is more likely to be wrong than the server to come back.
        self._known = False
        self._client: Any = None

    @classmethod
    def of(cls, client: redis.Redis, *, pool: int = 5, pool_timeout_s: float = 5.0) -> Server:
        """The server of a ready redis-py client, with connections of our own."""
        theirs = client.connection_pool
        server = cls(
            Address.of(theirs.connection_class, theirs.connection_kwargs), pool=pool, pool_timeout_s=pool_timeout_s
        )
        server._client = client  # a Sentinel's connections ask their pool, which must live on, for the address
        return server

    def __repr__(self) -> str:
        return f"<Server {self.place}>"

    # -- calls -----------------------------------------------------------------------------------------

    def run(self, script: Script, keys: Sequence[bytes | str], args: Sequence[bytes | str | int | float]) -> Any:
        """The script's answer."""
        answer = self.exchange([("EVALSHA", script.sha, len(keys), *keys, *args)])[0]
        if isinstance(answer, NoScriptError):  # restarted, or its scripts were flushed: EVAL stores it again
            answer = self.exchange([("EVAL", script.text, len(keys), *keys, *args)])[0]
        if isinstance(answer, Exception):
            raise explain(answer, self.place) from answer
        return answer

    def run_all(self, calls: Sequence[Call]) -> list[Any]:
        """The answers of many scripts, sent at once; the first error is raised when all have been run.

        They run in their order, but for those that Redis did not know yet: they run after the others.
        """
        answers = self.exchange([evalsha(call) for call in calls])
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            for n, answer in zip(unknown, self.exchange([eval_(calls[n]) for n in unknown]), strict=True):
                answers[n] = answer
        return self._good(answers)

    def do(self, *command: bytes | str | int | float) -> Any:
        """The answer to one command."""
        return self._good(self.exchange([command]))[0]

    def do_all(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to many commands, sent at once; the first error is raised when all have been carried out."""
        return self._good(self.exchange(commands))

    def _good(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise explain(answer, self.place) from answer
        return answers

    # -- waiting ---------------------------------------------------------------------------------------

    def wait(self, keys: Sequence[bytes | str], timeout_s: float) -> bytes | None:
        """The key of a list from which an element was taken; None after `timeout_s`, or when nudged."""
        return self._waiting.wait(keys, timeout_s)

    def nudge(self) -> None:
        """End every `wait` now."""
        self._waiting.nudge()

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        self._waiting.close()
        self.connections.close()

    # -- how -------------------------------------------------------------------------------------------

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands, an error reply in its place; what a repeat may help is made again."""
        if not commands:
            return []
        began = time.monotonic()
        answers = self._deliver(commands, began)
        pauses = None
        while again := [n for n, answer in enumerate(answers) if isinstance(answer, Exception) and is_away(answer)]:
            pauses = pauses or self._pauses(began)
            if not next(pauses, False):
                break
            self.connections.drop_idle()  # if it is a replica now, its name may lead to another server
            for n, answer in zip(again, self._deliver([commands[n] for n in again], began), strict=True):
                answers[n] = answer
        return answers

    def _deliver(self, commands: Sequence[Command], began: float) -> list[Any]:
        pauses = None
        while True:
            connection, used = self.connections.take()
            try:
                send(connection, commands)
                answers = receive(connection, len(commands))
            except (RedisError, OSError) as error:
                self.connections.drop(connection)
                if not is_lost(error):
                    raise explain(error, self.place) from error
                self.connections.drop_idle()  # they are as old as this one
                first, pauses = pauses is None, pauses or self._pauses(began)
                # One that the server had closed while it lay idle says nothing about the server.
                stale = used and first and not isinstance(error, redis_errors.TimeoutError)
                if not stale and not next(pauses, False):
                    raise explain(error, self.place) from error
            except BaseException:
                self.connections.drop(connection)  # an answer may still come on it
                raise
            else:
                self.connections.give(connection)
                self._known = True
                return answers

    def _pauses(self, began: float) -> Iterator[bool]:
        """Sleeps before each further try that is worth it."""
        for pause in PAUSES_S if self._known else ():
            pause *= random.uniform(1.0, 1.5)
            if time.monotonic() + pause - began > PATIENCE_S:
                return
            time.sleep(pause)
            yield True


def evalsha(call: Call) -> Command:
    """The command for a script that Redis knows."""
    script, keys, args = call
    return ("EVALSHA", script.sha, len(keys), *keys, *args)


def eval_(call: Call) -> Command:
    """The command for one that it does not."""
    script, keys, args = call
    return ("EVAL", script.text, len(keys), *keys, *args)
