"""Workers on Redis as a user runs them: what is wrong with the URL or the server is said in a sentence."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.cli import Shop
from tests.certificates import TlsServer, make_certificate
from tests.servers import RedisServer

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
    _, log = worker.communicate(timeout=120)
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
        assert "the broker is back" in said(worker, "the broker ")
        code, log = end(worker)
    finally:
        server.end()
    assert (code, "the broker" in log) == (0, False), log
