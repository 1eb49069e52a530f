"""Tests of `rediss:` URLs: server certificates, client certificates, and immediate errors for wrong settings."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway.brokers.redis.settings import RedisSettings
from laneway.errors import BrokerAwayError, BrokerError, ConfigError
from laneway.urls import Url
from tests.support.certificates import TlsServer, make_certificate, make_expired_certificate
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisServer, servers, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two certificates, of which the server's is `a`, and files that are none."""
    folder = tmp_path_factory.mktemp("tls")
    make_certificate(folder, "a")
    make_certificate(folder, "b")
    (folder / "junk").write_text("junk")
    key, locked = str(folder / "a.key"), str(folder / "locked.key")
    subprocess.run(
        ["openssl", "rsa", "-aes256", "-passout", "pass:x", "-in", key, "-out", locked], check=True, capture_output=True
    )
    return folder


@pytest.fixture(scope="module")
def lenient(folder: Path) -> Iterator[TlsServer]:
    server = TlsServer(folder / "lenient", folder / "a.pem")
    yield server
    server.end()


@pytest.fixture(scope="module")
def strict(folder: Path) -> Iterator[TlsServer]:
    """It wants to see a certificate of ours."""
    server = TlsServer(folder / "strict", folder / "a.pem", wants=folder / "a.pem")
    yield server
    server.end()


@pytest.mark.parametrize("kind", ["lenient", "strict"])
def test_calls_and_waits(kind: str, folder: Path, open_url: Opener, request: pytest.FixtureRequest) -> None:
    server: TlsServer = request.getfixturevalue(kind)
    ours = f"&cert={folder}/a.pem&key={folder}/a.key" if kind == "strict" else ""
    caller = open_url(f"{server.url}ca={folder}/a.pem{ours}")
    blob = b"x" * 1_000_000
    assert caller.do_all([("SET", "k", blob), ("GET", "k")]) == [b"OK", blob]
    for _ in range(3):
        assert caller.wait(["w"], 0.01) == set()
    caller.do("RPUSH", "w", "x")
    assert caller.wait(["w"], 60) == {b"w"}
    ends: list[object] = []
    waiting = threading.Thread(target=lambda: ends.append(caller.wait(["w"], 300)))
    waiting.start()
    with server.plain.client() as client:
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, str)
    caller.nudge()
    waiting.join(60)
    assert ends == [set()]


def refused(open_url: Opener, url: str) -> str:
    """The sentence by which a server is found to be talked to in a wrong way, alone and as a node of a Cluster."""
    said = []
    for each in (url, url.replace("://", "+cluster://")):
        with pytest.raises(BrokerError) as caught:
            open_url(each).do("PING")
        assert not isinstance(caught.value, BrokerAwayError), caught.value
        said.append(str(caught.value))
    assert said[0] == said[1]
    return said[0]


def test_a_stranger_is_not_trusted(lenient: TlsServer, folder: Path, open_url: Opener) -> None:
    for url in (lenient.url, f"{lenient.url}ca={folder}/b.pem"):
        sentence = refused(open_url, url)
        assert "has a certificate that is not trusted here; set ca=… in the URL to the file of" in sentence
        assert "or verify=no" in sentence
    assert open_url(f"{lenient.url}verify=no").do("PING") == b"PONG"


def test_the_name_is_looked_at(lenient: TlsServer, folder: Path, open_url: Opener) -> None:
    sentence = refused(open_url, f"{lenient.url.replace('127.0.0.1', 'localhost')}ca={folder}/a.pem")
    assert "has a certificate of another name; name it in the URL as its certificate does, or set verify=no" in sentence


def test_a_certificate_out_of_date_is_told(tmp_path: Path, open_url: Opener) -> None:
    old = make_expired_certificate(tmp_path, "old")
    server = TlsServer(tmp_path / "server", old)
    try:
        sentence = refused(open_url, f"{server.url}ca={old}")
    finally:
        server.end()
    assert "has a certificate that is not valid today; renew it, or set the clock here" in sentence


@pytest.mark.parametrize("ours", ["", "&cert={0}/b.pem&key={0}/b.key"])
def test_a_server_wants_to_know_us(ours: str, strict: TlsServer, folder: Path, open_url: Opener) -> None:
    sentence = refused(open_url, f"{strict.url}ca={folder}/a.pem{ours.format(folder)}")
    assert "does not accept our certificate, or wants one and got none; set cert=… and key=…" in sentence


def test_a_plain_port_is_told(redis_server: RedisServer, open_url: Opener) -> None:
    sentence = refused(open_url, redis_server.url.replace("redis:", "rediss:").removesuffix("/0") + "?timeout=0.5")
    assert "does not speak TLS on this port; give the port on which it does, or use a redis: URL" in sentence


@pytest.mark.parametrize("kind", ["lenient", "strict"])
def test_a_port_for_tls_is_told(kind: str, open_url: Opener, request: pytest.FixtureRequest) -> None:
    server: TlsServer = request.getfixturevalue(kind)
    for url in (f"redis://127.0.0.1:{server.port}", f"redis://:password@127.0.0.1:{server.port}"):
        assert "speaks only TLS on this port; use a rediss: URL for it" in refused(open_url, url)


def test_a_server_that_is_silent_is_away(tmp_path: Path, open_url: Opener) -> None:
    own = RedisServer.start(servers()["valkey"], tmp_path)
    own.stop()
    try:
        for scheme in ("redis", "rediss"):
            with pytest.raises(BrokerAwayError, match="is away"):
                open_url(f"{scheme}://127.0.0.1:{own.port}?timeout=0.5").do("PING")
    finally:
        own.end()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("ca={0}/none", "ca must be the path of a file that exists, not "),
        ("ca={0}", "ca must be the path of a file that exists, not "),
        ("ca={0}/junk", "ca must be a file of certificates (PEM), and "),
        ("cert={0}/a.pem", "cert is a certificate without its key"),
        ("cert={0}/junk&key={0}/a.key", "cert must be a file of certificates (PEM), and "),
        ("cert={0}/a.pem&key={0}/junk", "key must be a file of a private key (PEM), and "),
        ("cert={0}/a.pem&key={0}/none", "key must be the path of a file that exists, not "),
        ("cert={0}/a.pem&key={0}/b.key", "key must be the key of the certificate in cert, and "),
        ("cert={0}/a.pem&key={0}/locked.key", "key must be readable without a passphrase, and "),
    ],
)
def test_files_that_cannot_be_used_are_told_without_a_server(folder: Path, options: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RedisSettings.from_url(Url.parse(f"rediss://no-such-host.invalid?{options.format(folder)}"), {})
    assert sentence in str(caught.value)


def test_a_file_that_is_gone_later_is_told(tmp_path: Path, lenient: TlsServer, folder: Path, open_url: Opener) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes((folder / "a.pem").read_bytes())
    caller = open_url(f"{lenient.url}ca={ca}")
    assert caller.do("PING") == b"PONG"
    ca.unlink()
    caller.close()
    with pytest.raises(BrokerError, match="cannot begin: ca must be the path of a file that exists") as caught:
        caller.do("PING")
    assert not isinstance(caught.value, BrokerAwayError)  # nothing was sent


def test_another_certificate_after_a_restart(tmp_path: Path, folder: Path, open_url: Opener) -> None:
    server = TlsServer(tmp_path, folder / "a.pem")
    try:
        caller = open_url(f"{server.url}ca={folder}/a.pem")
        assert caller.do("PING") == b"PONG"
        server.show(folder / "b.pem")
        with pytest.raises(BrokerAwayError, match="not trusted here; set ca="):
            caller.do("PING")  # it was sent on the old connection, and may have been carried out
        with pytest.raises(BrokerError, match="not trusted here; set ca=") as caught:
            caller.do("PING")
        assert not isinstance(caught.value, BrokerAwayError)
        server.show(folder / "a.pem")
        assert caller.do("PING") == b"PONG"
    finally:
        server.end()
