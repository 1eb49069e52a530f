"""Just enough HTTP/1.1 for boto3: requests with a content length, on connections that stay open.

This file owns the connections. The handler decides the meaning of a request: it returns bytes at once, or an
awaitable (a long poll), which is cancelled when the client disconnects.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 500: "Internal Server Error"}


@dataclass(slots=True)
class Request:
    """A method, a path, headers by their names in small letters, and a body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def host(self) -> str:
        return self.headers.get("host", "")


Handler = Callable[[Request], bytes | Awaitable[bytes]]


def response(body: bytes, status: int = 200, headers: str = "", kind: str = "application/x-amz-json-1.0") -> bytes:
    reason = _REASONS.get(status, "Error")
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n{headers}"
    return b"%sContent-Length: %d\r\n\r\n%s" % (head.encode(), len(body), body)


class Connection(asyncio.Protocol):
    """One client: one request after another, each answered before the next is looked at."""

    def __init__(self, handler: Handler, open_: set[asyncio.Transport]) -> None:
        self._handler, self._open = handler, open_
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._open.add(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._open.discard(self._transport)
            self._transport = None
        if self._waiting is not None:
            self._waiting.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._waiting is None and self._transport is not None and (request := self._next()) is not None:
            self._answer(request)

    def _next(self) -> Request | None:
        """The next request, if all of it has arrived."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return None
        first, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = end + 4 + int(headers.get("content-length", 0))
        if len(self._buffer) < length:
            return None
        body = bytes(self._buffer[end + 4 : length])
        del self._buffer[:length]
        method, path, _ = first.split(" ", 2)
        return Request(method, path, headers, body)

    def _answer(self, request: Request) -> None:
        assert self._transport is not None
        try:
            answer = self._handler(request)
        except Exception:  # a mistake of this server's: whoever asked sees it, and the server goes on
            answer = response(traceback.format_exc().encode(), 500)
        if isinstance(answer, bytes):
            self._transport.write(answer)
            return
        self._waiting = asyncio.ensure_future(answer)
        self._waiting.add_done_callback(self._waited)

    def _waited(self, waited: asyncio.Future[bytes]) -> None:
        self._waiting = None
        if waited.cancelled() or self._transport is None:
            return
        error = waited.exception()
        said = "".join(traceback.format_exception(error)) if error else ""
        self._transport.write(response(said.encode(), 500) if error else waited.result())
        self.data_received(b"")
