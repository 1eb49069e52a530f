"""Turns error replies and errors of connections into Laneway errors, in a sentence each; StaleLayoutError.

A script replies `stale` if the caller's layout of a queue is outdated (`ensure_current`). A sentence names the server
by its `place`, which holds no secrets. It may quote Redis, which is safe: Redis never repeats a password.
"""

from __future__ import annotations

import re
from typing import Any

from ....errors import BrokerAwayError, BrokerError, BrokerRefusedError
from . import redis_py, tls


class StaleLayoutError(Exception):
    """The caller's layout of a queue is outdated, or the queue is gone."""


def ensure_current(answer: list[Any]) -> list[Any]:
    """The answer of a script; raises StaleLayoutError if it is `stale`."""
    if answer and answer[0] == b"stale":
        raise StaleLayoutError
    return answer


#: Error replies after which a repeat may help: the server is starting, busy, or about to change its role.
_AWAY_WORDS = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "READONLY", "TRYAGAIN", "UNBLOCKED"}
)

#: Error texts for a script that calls a command which its user may not call. They begin with no error word.
_FORBIDDEN = re.compile(
    r"^ACL failure|has no permissions|^The user executing the script can't|^No permissions to access"
)
_COMMAND = re.compile(r"run the '([\w|]+)' command")
#: What a server says to a long command of a connection that has not logged in; to a short one it says NOAUTH.
_NOT_LOGGED_IN = re.compile(r"^Protocol error: unauthenticated (?:multi)?bulk length")
_NO_PASSWORD = re.compile(r"AUTH <password> called without any password|Client sent AUTH, but no password is set")

#: Before version 7 Redis wrapped the error of a command that a script had called.
_WRAPPED = re.compile(r"^(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )")
#: Since version 7 Redis appends the position in the script.
_WHERE = re.compile(r"\.? script: (?:[0-9a-f]{40},? ?)?on @?\w+:\d+\.?$")


def is_lost(error: Exception) -> bool:
    """Whether the connection failed, so that the client cannot know whether the call was carried out."""
    if isinstance(error, (redis_py.AuthenticationError, redis_py.AuthorizationError)):
        return False
    lost = isinstance(error, (redis_py.ConnectionError, redis_py.TimeoutError, OSError))
    return lost and tls.sentence(error, "") is None


def is_away(error: Exception) -> bool:
    """Whether a repeat may help."""
    if is_lost(error) or _word(_text(error)) in _AWAY_WORDS:
        return True
    # Without their words. A ClusterDownError is MASTERDOWN too.
    away = (redis_py.BusyLoadingError, redis_py.ClusterDownError, redis_py.ReadOnlyError, redis_py.TryAgainError)
    return isinstance(error, away)


def is_unknown_script(error: Exception) -> bool:
    """Whether the server does not know a script."""
    return isinstance(error, redis_py.NoScriptError) or _word(str(error)) == "NOSCRIPT"


def redirection(error: BaseException | None) -> redis_py.AskError | None:
    """Where else in its Cluster to make a call: a MovedError means from now on, an AskError means this time only."""
    if error is None or isinstance(error, redis_py.AskError):
        return error
    word, _, where = str(error).partition(" ")
    kind = {"ASK": "AskError", "MOVED": "MovedError"}.get(word)  # not parsed by older redis-py, nor by hiredis
    return redis_py.make(kind, where) if kind else None


def explain(error: Exception, place: str) -> BrokerError:
    """The Laneway error for an error reply, or for an error of a connection."""
    text = _text(error)
    word = _word(text)
    about = text.rstrip(".") or type(error).__name__
    if sentence := tls.sentence(error, place):
        return BrokerRefusedError(sentence)
    if isinstance(error, redis_py.ReadOnlyError) or word == "READONLY":
        return BrokerAwayError(
            f"{place} is a replica, which cannot be written to; give the URL of the primary ({about})."
        )
    if isinstance(error, redis_py.BusyLoadingError) or word == "LOADING":
        return BrokerAwayError(f"{place} is still loading its data; it answers when that is done ({about}).")
    if word == "BUSY":
        return BrokerAwayError(f"{place} is busy with a long script; wait for it to end ({about}).")
    if word == "MISCONF":
        return BrokerAwayError(f"{place} cannot write to its disk and so takes no jobs; look at its log ({about}).")
    if isinstance(error, redis_py.TryAgainError) or word == "TRYAGAIN":
        return BrokerAwayError(
            f"{place} is moving a slot to another node, and work on what lies in it waits until it has moved; "
            f"see that the move comes to its end ({about})."
        )
    if is_away(error):
        return BrokerAwayError(f"{place} is away; see that it runs and can be reached from here ({about}).")
    if isinstance(error, redis_py.OutOfMemoryError) or word == "OOM":
        return BrokerRefusedError(
            f"{place} is out of memory and takes no more; let workers drain it, or raise its maxmemory ({about})."
        )
    if isinstance(error, redis_py.NoPermissionError) or word == "NOPERM" or _FORBIDDEN.search(text):
        return BrokerRefusedError(
            f"{place} forbids this user {_right(text)}; give the user all rights that docs/brokers.md lists under "
            f"Permissions ({about})."
        )
    if _NO_PASSWORD.search(text):
        return BrokerRefusedError(
            f"{place} was given a password and has none for its default user; leave it out of the URL and of "
            f"LANEWAY_REDIS_PASSWORD, or name the user whose it is, redis://user:password@host ({about})."
        )
    if "DB index is out of range" in text:
        return BrokerRefusedError(
            f"{place} has no database of the number in the URL; give a smaller one, or 0 and a prefix=… of its own, or "
            f"raise `databases` in its configuration ({about})."
        )
    if "SELECT is not allowed in cluster mode" in text:
        return BrokerRefusedError(f"{place} is a node of a Redis Cluster; use a redis+cluster: URL for it ({about}).")
    denied = isinstance(error, (redis_py.AuthenticationError, redis_py.AuthorizationError))
    if denied or word in ("NOAUTH", "WRONGPASS") or _NOT_LOGGED_IN.search(text):
        return BrokerRefusedError(
            f"{place} did not let Laneway in; set the right user and password in the URL "
            f"(redis://user:password@host) or in LANEWAY_REDIS_USERNAME and LANEWAY_REDIS_PASSWORD ({about})."
        )
    if redirection(error) or isinstance(error, redis_py.ClusterCrossSlotError) or word == "CROSSSLOT":
        return BrokerRefusedError(f"{place} is a node of a Redis Cluster; use a redis+cluster: URL for it ({about}).")
    if word == "WRONGTYPE":
        return BrokerRefusedError(
            f"{place} holds keys of Laneway's prefix that this version cannot read: an earlier version or another "
            "program wrote them; give a prefix=… of its own in the URL, or delete all keys that begin with the prefix "
            f"in braces, such as {{laneway}} and {{laneway: ({about})."
        )
    if "cluster support disabled" in text:
        return BrokerRefusedError(f"{place} is no Cluster; use a redis: URL for it, without +cluster ({about}).")
    return BrokerRefusedError(f"{place} answered with an error: {about}.")


def _right(text: str) -> str:
    """The permission that a user lacks, in words."""
    if found := _COMMAND.search(text):
        return f"the command {found[1]} (+{found[1]})"
    if "key" in text:
        return "some of the keys that begin with {prefix} and {prefix: (~{laneway}* and ~{laneway:* by default)"
    return "a command that Laneway's scripts call: +time perhaps, which is neither +@read nor +@write"


def _text(error: Exception) -> str:
    return _WHERE.sub("", _WRAPPED.sub("", str(error))).removeprefix("ERR ")  # redis-py has removed it


def _word(text: str) -> str:
    return text.partition(" ")[0]
