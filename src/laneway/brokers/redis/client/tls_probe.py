"""Finds out whether a server that hangs up or stays silent on first contact speaks TLS or plain text.

The probe uses a connection of its own and sends no credentials. A server speaks a protocol only if it answers in it;
silence proves nothing. Does not load redis-py.
"""

from __future__ import annotations

import socket
import ssl
import sys

from . import redis_py, tls
from .connections import Address

#: Seconds that the server gets for each step of it.
PROBE_S = 1.0


def mistake(address: Address, error: BaseException, *, probe: bool) -> str | None:
    """What is wrong about how a server is talked to, in a sentence; None if nothing is, or it cannot be found out.

    Without `probe` the server is left alone: one that has answered before need not be asked what it speaks.
    """
    arguments, is_tls = address.arguments, _is_tls(address)
    if is_tls and not arguments.get("ssl_password"):
        files = (arguments.get(f"ssl_{name}") for name in ("ca_certs", "certfile", "keyfile"))
        if problem := tls.files_problem(*files):
            return f"TLS to {address.place} cannot begin: {problem}"
    if not probe or "host" not in arguments or not _connected(error):
        return None  # also a socket of this machine, and where a Sentinel says
    host, port = arguments["host"], arguments.get("port", 6379)
    if not is_tls:
        return tls.only_tls(address.place) if _speaks_tls(host, port) else None
    return tls.no_tls(address.place) if _speaks_plain(host, port) else _refusal(address)


def _is_tls(address: Address) -> bool:
    if "redis.connection" not in sys.modules:  # TLS is redis-py's
        return False
    from redis.connection import SSLConnection

    return isinstance(address.connection_class, type) and issubclass(address.connection_class, SSLConnection)


def _connected(error: BaseException | None) -> bool:
    """Whether somebody may have been there, and it is not known that nobody was."""
    while error is not None:
        if isinstance(error, (ConnectionRefusedError, socket.gaierror)):
            return False
        error = error.__cause__ or error.__context__
    return True


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), PROBE_S) as plain, context.wrap_socket(plain, server_hostname=host):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it wants something of us, but it speaks it
    except (OSError, ValueError):
        return False


def _speaks_plain(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), PROBE_S) as plain:
            plain.sendall(b"PING\r\n")
            return plain.recv(1) in (b"+", b"-")  # an error is an answer too
    except OSError:
        return False


def _refusal(address: Address) -> str | None:
    """What a server says that refuses us after the handshake: whoever writes at once may not get to read it."""
    arguments = {**address.arguments, "redis_connect_func": lambda connection: None}
    arguments |= {"socket_timeout": PROBE_S, "socket_connect_timeout": PROBE_S}
    connection = address.connection_class(**arguments)
    try:
        connection.connect()
        connection._sock.recv(1)
    except (redis_py.RedisError, OSError) as error:
        return tls.sentence(error, address.place)
    finally:
        connection.disconnect()
    return None
