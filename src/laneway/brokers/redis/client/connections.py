"""Connections: a bounded set of connections to one server, each lent to one thread at a time.

A redis-py client costs twice as much as its connections, so Laneway uses the connections directly and keeps a few of
them. This file never repeats a call and never judges an answer: `server` does. A forked process closes its copies of
the parent's connections and opens its own.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ....errors import BrokerAwayError
from . import redis_py

pack: Callable[[tuple[Any, ...]], bytes] | None
try:
    from hiredis import pack_command as pack
except ImportError:  # then redis-py makes all connections
    pack = None

#: A key, as arguments of scripts and answers have it.
Key = bytes | str
#: A command as it is sent.
Command = Sequence[bytes | str | int | float]


class Connection(Protocol):
    """What Laneway needs of a connection of redis-py's, which has types for half of it; SocketConnection has it too."""

    #: None until it is connected. Not public, but there is no other way to wait for two things at once.
    _sock: socket.socket | None

    def connect(self) -> None: ...
    def pack_commands(self, commands: Iterable[Command]) -> Sequence[bytes]: ...
    def send_packed_command(self, command: Sequence[bytes], check_health: bool = ...) -> None: ...
    def read_response(self) -> Any: ...
    def can_read(self, timeout: float = ...) -> bool: ...
    def disconnect(self) -> None: ...


#: What a ready client's connections have that ours must not: it belongs to the client, or is done here.
_NOT_OURS = frozenset({"event_dispatcher", "himport_registry", "parser_class", "command_packer", "legacy_responses"})
_NOT_OURS_EITHER = ("retry", "maint", "orig_", "oss_cluster")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how to talk to it."""

    #: What it is called in errors and logs.
    place: str
    connection_class: Callable[..., Any] = field(repr=False)
    #: Holds the password.
    arguments: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, connection_class: Callable[..., Any], arguments: Mapping[str, Any]) -> Address:
        """The address that a redis-py client has."""
        ours = {
            name: value
            for name, value in arguments.items()
            if name not in _NOT_OURS and not name.startswith(_NOT_OURS_EITHER)
        }
        if "path" in ours:
            place = f"Redis at {ours['path']}"
        else:
            place = f"Redis at {ours.get('host', 'localhost')}:{ours.get('port', 6379)}"
        # Bytes in, bytes out, and nothing between a call and its answer.
        ours |= {"decode_responses": False, "protocol": 2, "health_check_interval": 0}
        return cls(place, connection_class, ours)

    def at(self, host: str, port: int) -> Address:
        """Another server that is talked to in the same way."""
        return replace(self, place=f"Redis at {host}:{port}", arguments={**self.arguments, "host": host, "port": port})

    def make(self, timeout_s: float | None = None) -> Connection:
        """A connection, which connects when it is first used."""
        arguments = dict(self.arguments)
        if timeout_s is not None:
            arguments |= {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
        connection: Connection = self.connection_class(**arguments)
        return connection


def send(connection: Connection, commands: Sequence[Command]) -> None:
    """Send commands, connecting first if need be."""
    if pack is None:
        packed = connection.pack_commands(commands)
    elif len(commands) == 1:
        packed = (pack(tuple(commands[0])),)
    else:
        packed = (b"".join([pack(tuple(command)) for command in commands]),)
    if connection._sock is not None and len(packed) == 1:
        packed = (_written(connection._sock, packed[0]),)
        if not packed[0]:
            return
    connection.send_packed_command(packed, check_health=False)


def _written(sock: socket.socket, data: bytes) -> bytes:
    """What is left of `data` when as much as possible has been written at once.

    With a timeout Python asks before it writes, and lets other threads run between the two. When they are busy, that
    takes milliseconds.
    """
    if type(sock) is not socket.socket:  # TLS
        return data
    try:
        return data[os.write(sock.fileno(), data) :]
    except OSError:
        return data  # whoever tries again says what is wrong


def receive(connection: Connection, count: int) -> list[Any]:
    """The answers to `count` commands; an error reply stands in its place."""
    answers = []
    for _ in range(count):
        try:
            answers.append(connection.read_response())
        except redis_py.ResponseError as error:
            answers.append(error)
    return answers


class Connections:
    """At most so many connections, which are lent to one thread each."""

    def __init__(self, address: Address, most: int, timeout_s: float) -> None:
        self.address = address
        self._most = most
        self._timeout_s = timeout_s
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._make_lock()
        _pools.add(self)

    def _make_lock(self) -> None:
        self._returned = threading.Condition(threading.Lock())
        self._waiting = 0

    def take(self) -> tuple[Connection, bool]:
        """A connection, and whether it has been used before: then the server may have closed it meanwhile."""
        try:
            return self._idle.pop(), True
        except IndexError:
            return self._make_or_wait()

    def _make_or_wait(self) -> tuple[Connection, bool]:
        deadline = time.monotonic() + self._timeout_s
        with self._returned:
            self._waiting += 1  # before looking: whoever gives one back after the look will see it
            try:
                while True:
                    if self._idle:
                        return self._idle.pop(), True
                    if len(self._all) < self._most:
                        connection = self.address.make()
                        self._all.add(connection)
                        return connection, False
                    if not self._returned.wait(max(deadline - time.monotonic(), 0)) and time.monotonic() >= deadline:
                        raise BrokerAwayError(
                            f"All {self._most} connections to {self.address.place} have been in use for "
                            f"{self._timeout_s:g} s; set a larger pool=… in its URL, or make fewer calls at once."
                        )
            finally:
                self._waiting -= 1

    def give(self, connection: Connection) -> None:
        """Give back a connection whose answers have all been read."""
        if connection not in self._all:  # closed meanwhile, or made before a fork
            connection.disconnect()
            return
        self._idle.append(connection)
        if self._waiting:
            with self._returned:
                self._returned.notify()

    def drop(self, connection: Connection) -> None:
        """Close a connection that failed."""
        connection.disconnect()
        with self._returned:
            self._all.discard(connection)
            self._returned.notify()

    def drop_idle(self) -> None:
        """Close those that nobody uses."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self.drop(connection)

    def close(self) -> None:
        """Close all; one that is in use closes when it is given back."""
        with self._returned:
            self._all.clear()
        self.drop_idle()

    def forget(self) -> None:
        """In a forked process: what is open belongs to the parent. Only this process's copies are closed."""
        self._make_lock()
        for connection in self._all:
            connection.disconnect()  # the parent's stays open: redis-py sees the other pid, and we only close
        self._all.clear()
        self._idle.clear()


_pools: weakref.WeakSet[Connections] = weakref.WeakSet()


def _forget_all() -> None:
    for pool in tuple(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_forget_all)
