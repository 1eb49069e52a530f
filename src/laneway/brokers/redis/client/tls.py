"""Checks TLS files, and explains TLS errors in a sentence each. Does not load redis-py.

A certificate that is not trusted now will not be trusted in a second, so none of these errors is retried. `errors`
handles the errors that may pass.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

_NAMES = re.compile(r"hostname mismatch|ip address mismatch|email address mismatch", re.IGNORECASE)
_TIMES = re.compile(r"has expired|not yet valid", re.IGNORECASE)
#: Alerts by which a server says what it thinks of us, and that will be the same the next time.
_ALERTS = re.compile(
    r"ALERT_(?:CERTIFICATE|BAD_CERTIFICATE|UNSUPPORTED_CERTIFICATE|NO_CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE"
    r"|ACCESS_DENIED)"
)
#: No way of talking that both sides know.
_VERSIONS = re.compile(r"PROTOCOL_VERSION|UNSUPPORTED_PROTOCOL|NO_PROTOCOLS_AVAILABLE|INSUFFICIENT_SECURITY|NO_CIPHERS")
#: What came back was no TLS.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
_WHERE_IN_PYTHON = re.compile(r"^\[[^]]*\] | ?\(_ssl\.c:\d+\)")


def sentence(error: BaseException, place: str) -> str | None:
    """What is wrong with TLS to the server at `place`; None if that is not what an error is about."""
    found = _root(error)
    if found is None:
        return None
    about = _WHERE_IN_PYTHON.sub("", str(found.args[-1]) if found.args else "").rstrip(".")
    reason: str = getattr(found, "reason", None) or ""  # what Python itself raises has none
    if isinstance(found, ssl.SSLCertVerificationError):
        if _NAMES.search(about):
            return (
                f"{place} has a certificate of another name; name it in the URL as its certificate does, or set "
                f"verify=no to trust any certificate ({about})."
            )
        if _TIMES.search(about):
            return f"{place} has a certificate that is not valid today; renew it, or set the clock here ({about})."
        return (
            f"{place} has a certificate that is not trusted here; set ca=… in the URL to the file of the authority "
            f"that signed it, or verify=no to trust any certificate ({about})."
        )
    if _ALERTS.search(reason):
        return (
            f"{place} does not accept our certificate, or wants one and got none; set cert=… and key=… in the URL to "
            f"one that was signed by an authority it trusts ({about})."
        )
    if _VERSIONS.search(reason):
        return f"{place} speaks no version of TLS that this Python does; change its settings ({about})."
    return no_tls(place) if reason in _NOT_TLS else None


def no_tls(place: str) -> str:
    """The sentence for a port at which TLS is not spoken."""
    return f"{place} does not speak TLS on this port; give the port on which it does, or use a redis: URL without TLS."


def only_tls(place: str) -> str:
    """The sentence for a port at which nothing else is."""
    return f"{place} speaks only TLS on this port; use a rediss: URL for it, with ca=… if its authority is your own."


def files_problem(ca: str | None, cert: str | None, key: str | None) -> str | None:
    """What is wrong with the files of a URL; None: they can be used."""
    for name, path in (("ca", ca), ("cert", cert), ("key", key)):
        if path is not None and (problem := _unreadable(name, path)):
            return problem
    if ca is not None and not _holds_certificates(ca):
        return f"ca must be a file of certificates (PEM), and {ca!r} holds none."
    return None if cert is None else _pair_problem(cert, key)


def _unreadable(name: str, path: str) -> str | None:
    try:
        if not Path(path).is_file():
            return f"{name} must be the path of a file that exists, not {path!r}."
        with Path(path).open("rb"):
            return None
    except (OSError, ValueError) as error:  # a path with a zero in it is a ValueError
        why = error.strerror if isinstance(error, OSError) else error
        return f"{name} must be the path of a file that can be read, not {path!r} ({why})."


def _pair_problem(cert: str, key: str | None) -> str | None:
    asked = False

    def passphrase() -> bytes:  # without this OpenSSL would ask on the terminal
        nonlocal asked
        asked = True
        return b""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=passphrase)
    except (ssl.SSLError, OSError, ValueError) as error:
        if asked:
            return f"key must be readable without a passphrase, and that of {key or cert!r} is not."
        if not _holds_certificates(cert):
            return f"cert must be a file of certificates (PEM), and {cert!r} holds none."
        if "MISMATCH" in (getattr(error, "reason", None) or ""):
            return f"key must be the key of the certificate in cert, and that in {key or cert!r} is another one's."
        if key is None:
            return f"cert is a certificate without its key, {cert!r}; set key=… to the file of that too."
        return f"key must be a file of a private key (PEM), and {key!r} holds none."
    return None


def _holds_certificates(path: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, OSError, ValueError):
        return False
    return True


def _root(error: BaseException | None) -> ssl.SSLError | None:
    """What redis-py has made another error of."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
