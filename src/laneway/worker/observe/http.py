"""`StatusServer`: a small HTTP server for probes and scrapes. It answers GET and HEAD and logs no request.

It has no password, so it listens on 127.0.0.1 by default: an operator would not notice a port that is open to a
network by mistake, but notices at once a probe that fails. It cuts off slow and silent clients after a few seconds.
It limits the number of connections and closes the oldest connection first. Each request has its own thread.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import msgspec

from ...errors import ConfigError

#: A status, a content type and a body.
Reply = tuple[int, str, bytes]
Routes = Mapping[str, Callable[[], Reply]]

#: Seconds that a connection may last, from beginning to end.
LONGEST_S = 10.0
#: Connections at once.
MOST = 32

JSON = "application/json"

_log = logging.getLogger("laneway")


class StatusServer:
    """Serves routes on a port, from `start` to `stop`; with port 0 on a free one, which `port` tells."""

    def __init__(self, port: int, routes: Routes, *, host: str = "127.0.0.1", longest_s: float = LONGEST_S) -> None:
        self.port = port
        self.host = host
        self._routes = dict(routes)
        self._longest_s = longest_s
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to listen; raises ConfigError when the port cannot be had."""
        try:
            self._server = _Server(self.host, self.port, self._routes, self._longest_s)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"Port {self.port} of {self.host} cannot be served ({why}); give another one, or end who has it."
            ) from error
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="laneway-status", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Let go of the port and of everyone who is connected."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.cut_off(older_than=float("inf"))
        self._server = self._thread = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, host: str, port: int, routes: Routes, longest_s: float) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.routes = routes
        self._longest_s = longest_s
        self._lock = threading.Lock()
        #: When each connection was made; the oldest first.
        self._connections: dict[socket.socket, float] = {}
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks a name server for the name of this machine.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections[request] = time.monotonic()
            crowd = list(self._connections)[:-MOST]
        for connection in crowd:
            _hang_up(connection)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called several times a second."""
        self.cut_off(older_than=time.monotonic() - self._longest_s)

    def cut_off(self, older_than: float) -> None:
        """End connections; their threads see that, and close them."""
        with self._lock:
            slow = [connection for connection, began in self._connections.items() if began < older_than]
        for connection in slow:
            _hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # whoever asked has gone, and that is no concern of the log


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed already


class _Handler(BaseHTTPRequestHandler):
    server_version = "laneway"
    sys_version = ""
    #: Seconds of silence.
    timeout = 5.0

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _refuse(self) -> None:
        self._send(reply(405, {"reason": "Only GET and HEAD are answered here."}), True, {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        assert isinstance(self.server, _Server), "nobody else makes one"
        routes = self.server.routes
        route = routes.get(path)
        if route is not None:
            try:
                answer = route()
            except Exception as error:
                _log.exception("%s could not be answered", path)
                answer = reply(500, {"reason": f"{type(error).__name__}; the log says more."})
        elif path == "/":
            answer = reply(200, {"paths": sorted(routes)})
        else:
            answer = reply(404, {"reason": "There is no such path.", "paths": sorted(routes)})
        self._send(answer, with_body)

    def _send(self, answer: Reply, with_body: bool, headers: Mapping[str, str] | None = None) -> None:
        status, content_type, body = answer
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # a probe every few seconds would drown the log


def reply(status: int, document: Mapping[str, object]) -> Reply:
    """One line of JSON."""
    return status, JSON, msgspec.json.encode(document) + b"\n"


def health_routes(live: Callable[[], str | None], ready: Callable[[], str | None]) -> dict[str, Callable[[], Reply]]:
    """`/live` and `/ready`: 200 when all is well, else 503 and the reason that the function gives."""

    def route(ask: Callable[[], str | None]) -> Callable[[], Reply]:
        def answer() -> Reply:
            reason = ask()
            return reply(200, {"status": "ok"}) if reason is None else reply(503, {"status": "no", "reason": reason})

        return answer

    return {"/live": route(live), "/ready": route(ready)}
