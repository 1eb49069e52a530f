"""rediss: URLs: the server is known by its certificate, and may want to know ours."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway.errors import BrokerAwayError
from tests.redis.conftest import Opener
from tests.servers import RedisServer, free_port, servers, wait_until

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate of 127.0.0.1 that vouches for itself."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=laneway -addext subjectAltName=IP:127.0.0.1"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return folder


@pytest.fixture(params=["no", "yes"])
def server(request: pytest.FixtureRequest, certificate: Path, tmp_path: Path) -> Iterator[tuple[RedisServer, str]]:
    """A server, and the URL of its TLS port; it asks for a certificate of ours or not."""
    files = ("--tls-cert-file", f"{certificate}/cert.pem", "--tls-key-file", f"{certificate}/key.pem")
    files += ("--tls-ca-cert-file", f"{certificate}/cert.pem", "--tls-auth-clients", request.param)
    port = free_port()
    server = RedisServer.start(servers()["redis"], tmp_path, "--tls-port", str(port), *files)
    ours = f"&cert={certificate}/cert.pem&key={certificate}/key.pem" if request.param == "yes" else ""
    yield server, f"rediss://127.0.0.1:{port}?{ours}"
    server.end()


def test_calls_and_waits(server: tuple[RedisServer, str], certificate: Path, open_url: Opener) -> None:
    plain, url = server
    caller = open_url(f"{url}&ca={certificate}/cert.pem")
    blob = b"x" * 1_000_000
    assert caller.do_all([("SET", "k", blob), ("GET", "k")]) == [b"OK", blob]
    for _ in range(3):
        assert caller.wait(["w"], 0.01) is None
    caller.do("RPUSH", "w", "x")
    assert caller.wait(["w"], 60) == b"w"
    ends: list[object] = []
    waiting = threading.Thread(target=lambda: ends.append(caller.wait(["w"], 300)))
    waiting.start()
    with plain.client() as client:
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, str)
    caller.nudge()
    waiting.join(60)
    assert ends == [None]


def test_a_stranger_is_not_trusted(server: tuple[RedisServer, str], open_url: Opener) -> None:
    _, url = server
    with pytest.raises(BrokerAwayError, match="CERTIFICATE_VERIFY_FAILED"):
        open_url(url).do("PING")
    assert open_url(f"{url}&verify=no").do("PING") == b"PONG"


def test_the_name_is_looked_at(server: tuple[RedisServer, str], certificate: Path, open_url: Opener) -> None:
    _, url = server
    with pytest.raises(BrokerAwayError, match="CERTIFICATE_VERIFY_FAILED"):
        open_url(f"{url.replace('127.0.0.1', 'localhost')}&ca={certificate}/cert.pem").do("PING")


def test_a_plain_port_is_told(redis_server: RedisServer, open_url: Opener) -> None:
    with pytest.raises(BrokerAwayError, match="is away"):
        open_url(redis_server.url.replace("redis:", "rediss:") + "?timeout=0.5").do("PING")
