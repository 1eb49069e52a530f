"""Workers on Redis on the command line: errors in the URL or the server are reported in a sentence."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import TlsServer, make_certificate
from tests.support.servers import RedisServer, servers
from tests.support.shop import Shop

pytestmark = pytest.mark.acceptance


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a short name: the path of a server's socket has a limit."""
    return tmp_path_factory.mktemp("server")


def said(worker: subprocess.Popen[str], *parts: str) -> str:
    """The next line of a worker's log that has one of these in it."""
    assert worker.stderr is not None
    lines = []
    for line in worker.stderr:
        lines.append(line)
        if any(part in line for part in parts):
            return line
    raise AssertionError(f"None of {parts} was said:\n{''.join(lines)}")


def end(worker: subprocess.Popen[str]) -> tuple[int, str]:
    """Tell a worker to stop; its exit code, and what it said."""
    worker.send_signal(signal.SIGTERM)
    _, log = worker.communicate(timeout=60)
    return worker.returncode, log


def test_a_worker_does_not_start_with_tls_that_is_wrong(shop: Shop, redis_server: RedisServer, folder: Path) -> None:
    certificate = make_certificate(folder, "a")
    server = TlsServer(folder, certificate)
    try:
        assert "set ca=…" in shop.wrong("worker", "shop", "--url", server.url)
        assert "use a rediss: URL" in shop.wrong("worker", "shop", "--url", f"redis://127.0.0.1:{server.port}")
        wrong_name = server.url.replace("127.0.0.1", "localhost")
        assert "verify=no" in shop.wrong("worker", "shop", "--url", f"{wrong_name}ca={certificate}")
    finally:
        server.end()
    plain = f"rediss://127.0.0.1:{redis_server.port}?timeout=1"
    assert "does not speak TLS on this port" in shop.wrong("worker", "shop", "--url", plain)


def test_a_certificate_that_is_replaced_under_a_worker_is_told(shop: Shop, folder: Path) -> None:
    ours, other = make_certificate(folder, "ours"), make_certificate(folder, "other")
    server = TlsServer(folder, ours)
    try:
        worker = shop.serving("worker", "shop", "--url", f"{server.url}ca={ours}&timeout=1")
        server.plain.kill()
        assert "the broker is away" in said(worker, "the broker ")
        server.show(other)
        line = said(worker, "the broker ")
        assert "the broker refuses, trying again: " in line
        assert "has a certificate that is not trusted here; set ca=… in the URL" in line
        server.show(ours)
        said(worker, "the broker is back")
        code, log = end(worker)
    finally:
        server.end()
    assert (code, "the broker" in log) == (0, False), log


#: Much longer than stopping may take: whoever waits for an answer of a silent server is seen.
SILENT = "?timeout=300"
NAP = """
import time
from laneway import Laneway

app = Laneway(name="shop")

@app.task
def nap(seconds: float) -> None:
    print("napping", flush=True)
    time.sleep(seconds)
"""


@pytest.fixture
def own(folder: Path) -> Iterator[RedisServer]:
    """A server that may be harmed."""
    server = RedisServer.start(servers()["valkey"], folder)
    yield server
    server.end()


def test_a_worker_that_runs_nothing_stops_while_the_server_is_silent(shop: Shop, own: RedisServer) -> None:
    worker = shop.serving("worker", "shop", "--url", own.url + SILENT)
    own.stop()
    code, log = end(worker)
    assert code == 0, log
    assert "stopped (0 done, 0 failed)" in log
    assert "could not say goodbye to the broker" in log
    assert "is back" not in log


def test_a_worker_that_never_saw_the_server_stops(shop: Shop, own: RedisServer) -> None:
    own.stop()
    worker = shop.start("worker", "shop", "--url", own.url + SILENT)
    assert f"waiting for the broker at {own.url}" in said(worker, "waiting for the broker")
    code, log = end(worker)
    assert (code, "is back" in log) == (0, False), log


def test_a_worker_that_starts_while_the_server_is_away_does_not_say_that_it_is_back(
    shop: Shop, own: RedisServer
) -> None:
    own.kill()
    worker = shop.start("worker", "shop", "--url", own.url)
    said(worker, "the broker is away")
    code, log = end(worker)
    assert "is back" not in log
    assert code == 0, log


def test_what_is_waited_for_is_told_and_ends_after_the_shutdown_timeout(shop: Shop, own: RedisServer) -> None:
    shop.write("shop.py", NAP)
    worker = shop.serving("worker", "shop", "--url", own.url + SILENT, "--shutdown-timeout", "4")
    shop.python(f"import shop; shop.app.use({own.url!r}); shop.nap.enqueue(300.0); shop.app.close()")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "napping\n"
    own.stop()
    code, log = end(worker)
    assert code == 1, log
    assert "still waiting for nap " in log
    assert "stopped with 1 jobs unfinished" in log
    assert "is back" not in log


def test_a_server_that_is_emptied_under_a_run_is_told(shop: Shop, own: RedisServer) -> None:
    shop.write("shop.py", NAP)
    worker = shop.serving("worker", "shop", "--url", own.url, "--lease", "2")
    shop.python(f"import shop; shop.app.use({own.url!r}); shop.nap.enqueue(300.0); shop.app.close()")
    assert worker.stdout is not None
    assert worker.stdout.readline() == "napping\n"
    own.flush()
    line = said(worker, "does not know")
    assert "it was emptied, or has " in line
    assert "others" not in line
    said(worker, " started: ")
    code, log = end(worker)
    assert code == 0, log
