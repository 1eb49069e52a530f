"""Makes certificates with openssl, and starts Redis servers that present them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.servers import RedisServer, free_port, servers


def make_certificate(folder: Path, name: str, subject: str = "IP:127.0.0.1") -> Path:
    """A certificate that vouches for itself, `<name>.pem`, with its key beside it, `<name>.key`."""
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext subjectAltName={subject}"
    made = folder / f"{name}.pem"
    files = ["-keyout", str(made.with_suffix(".key")), "-out", str(made)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return made


def make_expired_certificate(folder: Path, name: str) -> Path:
    """The same, valid for a day that is long over."""
    key, request, made = (folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
    (folder / "index").touch()
    config = folder / "ca.conf"
    config.write_text(
        f"[a]\ndatabase={folder}/index\nnew_certs_dir={folder}\nrand_serial=yes\ndefault_md=sha256\npolicy=p\n"
        "x509_extensions=x\n[p]\ncommonName=supplied\n[x]\nsubjectAltName=IP:127.0.0.1\nbasicConstraints=CA:TRUE\n"
    )
    ask = f"openssl req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {key} -out {request}"
    sign = f"openssl ca -batch -selfsign -config {config} -name a -keyfile {key} -in {request} -out {made} -notext"
    for command in (ask, f"{sign} -startdate 20200101000000Z -enddate 20200102000000Z"):
        subprocess.run(command.split(), check=True, capture_output=True)
    return made


class TlsServer:
    """A Redis with a port for TLS beside its plain one."""

    def __init__(self, folder: Path, certificate: Path, *, wants: Path | None = None) -> None:
        self.port = free_port()
        folder.mkdir(exist_ok=True)
        self.plain = RedisServer.start(
            servers()["redis"], folder, "--tls-port", str(self.port), *_files(certificate, wants)
        )

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}?"

    def show(self, certificate: Path) -> None:
        """Be another one from now on, after a restart."""
        self.plain.options = (*self.plain.options[:2], *_files(certificate, None))
        self.plain.restart()

    def end(self) -> None:
        self.plain.end()


def _files(certificate: Path, wants: Path | None) -> tuple[str, ...]:
    """What a server shows; it `wants` to see a certificate that this one has signed."""
    theirs = ("--tls-cert-file", str(certificate), "--tls-key-file", str(certificate.with_suffix(".key")))
    ours = ("--tls-ca-cert-file", str(wants or certificate), "--tls-auth-clients", "yes" if wants else "no")
    return theirs + ours
