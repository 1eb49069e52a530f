"""Wire: a TCP connection between a worker and a server that a test can cut, like a network partition."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.support.servers import free_port


class Wire:
    """Forwards bytes from a port of 127.0.0.1 to another one, in threads of its own.

    While it is cut nothing gets through, and nobody is told: connections stay open and are silent. What was sent
    meanwhile arrives when it is mended, as the kernel sends again what was not acknowledged.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._whole = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self.mend()

    def cut(self, *, refuse: bool = False) -> None:
        """Part the two. New connections are made and never answered; with `refuse` there are none."""
        self._whole.clear()
        if refuse:
            self._stop_listening()

    def mend(self) -> None:
        """Join the two again, or for the first time."""
        self._whole.set()
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._start(self._accept, self._listener)

    def close(self) -> None:
        """End every connection."""
        self._stop_listening()
        for each in self._sockets:
            _end(each)
        self._whole.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "A thread of the wire has not ended."

    def _start(self, target: Callable[..., None], *args: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def _stop_listening(self) -> None:
        if self._listener is not None:
            _end(self._listener)  # so that `accept` returns
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with listener, suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._sockets.append(client)
                self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        self._whole.wait()
        try:
            server = socket.create_connection(("127.0.0.1", self._target))
        except OSError:
            client.close()
            return
        self._sockets.append(server)
        back = self._start(self._forward, server, client)
        self._forward(client, server)
        back.join()
        client.close()
        server.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                self._whole.wait()
                target.sendall(data)
        self._whole.wait()
        _end(target)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
