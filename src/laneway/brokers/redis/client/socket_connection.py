"""SocketConnection: a connection to a Redis server by a socket and hiredis, without redis-py.

It has the methods that Laneway needs of a connection of redis-py's (`connections.Connection`). It greets the server in
one round trip, where redis-py takes up to four. TLS is left to redis-py, and so are the connections of ready clients.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable, Sequence
from typing import Any

import hiredis

from . import redis_py

_CHUNK = 65_536
#: What a server that is full says to a new connection, whatever was sent, before it closes it.
_FULL = "ERR max number of clients reached"


class SocketConnection:
    """A connection by TCP or by a Unix socket. An error reply is returned as a hiredis.ReplyError, not raised, unless
    the server has refused the connection."""

    def __init__(
        self,
        *,
        host: str = "localhost",
        port: int = 6379,
        path: str | None = None,
        username: str | None = None,
        password: str | None = None,
        db: int = 0,
        socket_timeout: float,
        socket_connect_timeout: float,
        **_: Any,
    ) -> None:
        """The arguments are those of redis-py's connections; the rest of them is always the same here."""
        self._sock: socket.socket | None = None
        self._reader: Any = None
        self._host, self._port, self._path = host, port, path
        self._timeout_s, self._connect_timeout_s = socket_timeout, socket_connect_timeout
        #: What the server must accept before anything else, and what it may not know.
        self._login: list[tuple[str | int, ...]] = []
        if username:  # a user may be one without a password
            self._login.append(("AUTH", username, password or ""))
        elif password:
            self._login.append(("AUTH", password))
        if db:
            self._login.append(("SELECT", db))

    def connect(self) -> None:
        """Connect, unless it is connected. An OSError says that the server is not there."""
        if self._sock is not None:
            return
        sock = self._open()
        sock.settimeout(self._timeout_s)
        self._sock, self._reader = sock, hiredis.Reader()
        try:
            self._greet()
        except BaseException:
            self.disconnect()
            raise

    def _open(self) -> socket.socket:
        if self._path is None:
            sock = socket.create_connection((self._host, self._port), self._connect_timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(self._connect_timeout_s)
            sock.connect(self._path)
        except BaseException:
            sock.close()
            raise
        return sock

    def _greet(self) -> None:
        if not self._login:
            return
        self.send_packed_command(self.pack_commands(self._login))
        answers = [self.read_response() for _ in self._login]
        for (command, *_), answer in zip(self._login, answers, strict=True):
            if isinstance(answer, Exception):
                raise redis_py.make("AuthenticationError" if command == "AUTH" else "ResponseError", str(answer))

    def pack_commands(self, commands: Iterable[Sequence[Any]]) -> list[bytes]:
        return [b"".join([hiredis.pack_command(tuple(command)) for command in commands])]

    def send_packed_command(self, command: Sequence[bytes], check_health: bool = False) -> None:
        self.connect()
        assert self._sock is not None
        for data in command:
            self._sock.sendall(data)

    def read_response(self) -> Any:
        """The next reply. hiredis says False for one that has not arrived whole; no reply is False."""
        assert self._sock is not None
        try:
            while (reply := self._reader.gets()) is False:
                data = self._sock.recv(_CHUNK)
                if not data:
                    raise ConnectionResetError("the server has closed the connection")
                self._reader.feed(data)
        except TimeoutError:
            raise TimeoutError(f"Timeout: it has not answered for {self._timeout_s:g} s") from None
        except hiredis.ProtocolError as error:
            raise ConnectionError(f"its answer is not one of Redis: {error}") from error
        if isinstance(reply, hiredis.ReplyError) and str(reply) == _FULL:
            raise ConnectionError("max number of clients reached")
        return reply

    def can_read(self, timeout: float = 0) -> bool:
        """Whether a reply, a part of one or the end of the connection is there in this time."""
        self.connect()
        assert self._sock is not None
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(self._reader.has_data() or poll.poll(timeout * 1_000))

    def disconnect(self) -> None:
        """Close it; the next command opens it again. After a fork only the child's copy is closed."""
        sock, self._sock, self._reader = self._sock, None, None
        if sock is not None:
            sock.close()

    __del__ = disconnect
