"""The HTTP server for probes: real requests, and misbehaving clients."""

from __future__ import annotations

import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laneway.errors import ConfigError
from laneway.worker.observe.http import LONGEST_S, MOST, StatusServer, health_routes
from tests.support.worker_fixtures import PATIENCE_S


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        pause.wait(0.01)


@pytest.fixture
def serve() -> Iterator[Callable[..., StatusServer]]:
    servers: list[StatusServer] = []

    def start(routes=None, **options) -> StatusServer:
        servers.append(StatusServer(0, routes or {"/fine": lambda: (200, "text/plain", b"fine\n")}, **options))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def ask(server: StatusServer, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def connect(server: StatusServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=PATIENCE_S)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def request_threads() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def test_a_route_is_served(serve):
    server = serve()
    status, headers, body = ask(server, "/fine?x=1")
    assert (status, headers["Content-Type"], body) == (200, "text/plain", b"fine\n")
    assert "Python" not in headers["Server"]
    status, headers, body = ask(server, "/fine", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "5", b"")


def test_what_there_is_is_listed(serve):
    server = serve()
    assert json.loads(ask(server, "/")[2]) == {"paths": ["/fine"]}
    status, _, body = ask(server, "/else")
    assert (status, json.loads(body)["paths"]) == (404, ["/fine"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_get_and_head(serve, method):
    status, headers, _ = ask(serve(), "/fine", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_nothing_is_logged_of_requests(serve, capfd, caplog):
    server = serve()
    ask(server, "/fine")
    ask(server, "/else")
    with connect(server) as client:
        client.sendall(b"nonsense\r\n\r\n")
        client.recv(1000)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_a_route_that_fails_is_a_500_and_in_the_log(serve, caplog):
    def fail():
        raise ValueError("secret")

    status, _, body = ask(serve({"/": fail}), "/")
    assert (status, json.loads(body)) == (500, {"reason": "ValueError; the log says more."})
    assert "/ could not be answered" in caplog.text


def test_health_is_well_or_gives_the_reason(serve):
    reasons: dict[str, str | None] = {"live": None, "ready": "The broker is away."}
    server = serve(health_routes(lambda: reasons["live"], lambda: reasons["ready"]))
    assert ask(server, "/live")[::2] == (200, b'{"status":"ok"}\n')
    assert ask(server, "/ready")[::2] == (503, b'{"status":"no","reason":"The broker is away."}\n')
    reasons["ready"] = None
    assert ask(server, "/ready")[0] == 200


def test_a_port_in_use_is_a_sentence(serve):
    server = serve()
    second = StatusServer(server.port, {})
    with pytest.raises(ConfigError, match=rf"^Port {server.port} of 127.0.0.1 cannot be served \(.*in use\); .*\.$"):
        second.start()
    second.stop()
    server.stop()
    second.start()  # now it is free
    second.stop()


@pytest.mark.parametrize(("port", "host"), [(70_000, "127.0.0.1"), (0, "no.such.host.invalid"), (0, "192.0.2.1")])
def test_what_cannot_be_listened_on_is_a_sentence(port, host):
    with pytest.raises(ConfigError, match=rf"^Port {port} of {host} cannot be served"):
        StatusServer(port, {}, host=host).start()


def test_it_listens_on_this_machine_alone_unless_told_otherwise(serve):
    assert serve().host == "127.0.0.1"
    everywhere = serve(host="0.0.0.0")
    assert ask(everywhere, "/fine")[0] == 200


def test_the_port_is_not_handed_down_to_processes(serve):
    server = serve()
    assert server._server is not None
    assert not os.get_inheritable(server._server.fileno())


def test_silent_and_slow_clients_hold_up_nobody_and_are_cut_off(serve):
    before = open_files()
    server = serve(longest_s=0.5)
    clients = [connect(server) for _ in range(10)]
    for number, client in enumerate(clients):
        client.sendall(b"GET /fine HTTP/1.1\r\nX-" if number % 2 else b"")
    assert ask(server, "/fine")[0] == 200
    for client in clients:  # sending on does not prolong it
        while True:
            try:
                client.sendall(b"x")
                client.settimeout(0.05)
                if client.recv(1000) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        client.close()
    wait_until(lambda: request_threads() == 0)
    server.stop()
    wait_until(lambda: open_files() <= before)


def test_a_crowd_of_silent_clients_keeps_nobody_out(serve):
    server = serve(longest_s=PATIENCE_S)
    clients = [connect(server) for _ in range(3 * MOST)]
    assert ask(server, "/fine")[0] == 200
    wait_until(lambda: request_threads() <= MOST)
    assert clients[0].recv(10) == b""  # the oldest has given way
    server.stop()
    wait_until(lambda: request_threads() == 0)
    for client in clients:
        client.close()


def test_a_slow_route_holds_up_no_other(serve):
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go_on.wait(PATIENCE_S)
        return 200, "text/plain", b""

    server = serve({"/slow": slow, "/fine": lambda: (200, "text/plain", b"")})
    waiting = threading.Thread(target=ask, args=(server, "/slow"))
    waiting.start()
    assert begun.wait(PATIENCE_S)
    assert ask(server, "/fine")[0] == 200
    go_on.set()
    waiting.join()


def test_a_client_that_is_gone_before_its_answer_is_no_error(serve, capfd):
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go_on.wait(PATIENCE_S)
        return 200, "text/plain", b"x" * 10_000_000

    server = serve({"/": slow})
    client = connect(server)
    client.sendall(b"GET / HTTP/1.0\r\n\r\n")
    assert begun.wait(PATIENCE_S)
    client.close()
    go_on.set()
    wait_until(lambda: request_threads() == 0)
    assert capfd.readouterr() == ("", "")


def test_it_may_be_started_again(serve):
    server = serve()
    port = server.port
    server.stop()
    server.stop()
    server.start()
    assert server.port == port
    assert ask(server, "/fine")[0] == 200


def test_the_limits_are_what_the_page_says():
    page = (Path(__file__).parents[4] / "docs" / "operating.md").read_text(encoding="utf-8")
    assert f"{LONGEST_S:.0f} seconds" in page
