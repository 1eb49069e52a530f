"""Proxy: a network between a client and a Redis server that drops requests and replies on demand.

    with Proxy(server.port) as proxy:
        broker = RedisBroker.of(redis.Redis(port=proxy.port))
        proxy.plan = lambda number: LOSE_ANSWER if number == 2 else PASS

The proxy parses only as much of the protocol as it needs to find the end of a request and of a reply. It forwards a
request, or cuts the connection before it. After a forwarded request it passes the reply back, or cuts the
connection once the reply has arrived: then the server has surely executed the request. The commands that a client
sends when it connects always pass and are not counted.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO

PASS, LOSE_REQUEST, LOSE_ANSWER = "pass", "lose request", "lose answer"

#: What clients say of themselves when they connect.
_GREETINGS = (b"CLIENT", b"HELLO", b"AUTH", b"SELECT")


def all_pass(number: int) -> str:
    return PASS


class Proxy:
    """Between any number of connections and one server; a thread for each."""

    def __init__(self, port: int) -> None:
        self._server = port
        #: What happens to a request, by its number since `count` was last set to 0. Set it only while nobody calls.
        self.plan: Callable[[int], str] = all_pass
        #: Called when an answer is about to be lost.
        self.when_lost: Callable[[], None] = lambda: None
        #: Called before a request is passed on, with all its words.
        self.before: Callable[[list[bytes]], None] = lambda words: None
        self.count = 0
        #: How many were lost.
        self.lost = 0
        self._lock = threading.Lock()
        self._closed = False
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        with suppress(OSError):  # wakes the thread that accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "A thread of the proxy has not ended."

    def begin(self, plan: Callable[[int], str]) -> None:
        """Count from here on, and do by this plan."""
        self.count, self.lost, self.plan = 0, 0, plan

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            for each in tuple(self._open):
                _shut(each)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError), socket.create_connection(("127.0.0.1", self._server)) as server:
            with self._lock:
                self._open |= {client, server}
                if self._closed:
                    return
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                with client.makefile("rb") as requests, server.makefile("rb") as answers:
                    self._relay(client, server, requests, answers)
            finally:
                with self._lock:
                    self._open -= {client, server}
                for each in (client, server):
                    _shut(each)

    def _relay(self, client: socket.socket, server: socket.socket, requests: BinaryIO, answers: BinaryIO) -> None:
        while True:
            request, words = read_request(requests)
            fate = PASS
            if words[0].upper() not in _GREETINGS:
                with self._lock:
                    number, self.count = self.count, self.count + 1
                fate = self.plan(number)
            if fate == LOSE_REQUEST:
                self.lost += 1
                return
            self.before(words)
            server.sendall(request)
            answer = read_answer(answers)
            if fate == LOSE_ANSWER:
                self.lost += 1
                self.when_lost()
                return
            client.sendall(answer)


def read_request(stream: BinaryIO) -> tuple[bytes, list[bytes]]:
    """One request, as it is and in words."""
    head = _line(stream)
    parts, words = [head], list[bytes]()
    for _ in range(int(head[1:])):
        size = _line(stream)
        word = _exactly(stream, int(size[1:]) + 2)
        parts += [size, word]
        words.append(word[:-2])
    return b"".join(parts), words


def read_answer(stream: BinaryIO) -> bytes:
    """One answer, as it is."""
    head = _line(stream)
    size = int(head[1:]) if head[:1] in b"$*" else -1
    if head[:1] == b"$" and size >= 0:
        return head + _exactly(stream, size + 2)
    if head[:1] == b"*":
        return head + b"".join(read_answer(stream) for _ in range(size))
    return head


def _line(stream: BinaryIO) -> bytes:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    return line


def _exactly(stream: BinaryIO, size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
