"""Checks the names of events, topics and their queues, with a sentence for each wrong name.

It also reads LANEWAY_ENV and LANEWAY_DEVELOPMENT.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..config import name_problem, raise_problems
from ..errors import ConfigError
from .event import DEAD_LETTERS, LONGEST_NAME, EventNames

_YES = ("1", "true", "yes", "on")
_NO = ("", "0", "false", "no", "off")


def names_of(name: str | None, infix: str, env: str | None, environ: Mapping[str, str] = os.environ) -> EventNames:
    """How an app of this name names what belongs to events; raises ConfigError for parts that no name can have."""
    what = "env"
    if env is None and environ.get("LANEWAY_ENV"):
        what, env = "LANEWAY_ENV", environ["LANEWAY_ENV"]
    parts = {"name": name, "infix": infix, what: env}
    problems = [name_problem(what, part) for what, part in parts.items() if part is not None or what == "infix"]
    raise_problems([problem for problem in problems if problem])
    return EventNames(infix, env)


def is_development(given: bool | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether what is missing may be made by whoever needs it."""
    if given is not None:
        if not isinstance(given, bool):
            raise ConfigError(f"development must be True or False, not {given!r}.")
        return given
    text = environ.get("LANEWAY_DEVELOPMENT", "").strip().lower()
    if text not in _YES + _NO:
        raise ConfigError(f"LANEWAY_DEVELOPMENT must be 1 or 0, not {text!r}.")
    return text in _YES


def parts_problem(event: object, **others: object) -> str | None:
    """A sentence, if one of these cannot be a part of a name. A source or destination that is None is left out."""
    problems = [name_problem(what, part) for what, part in others.items() if part is not None]
    return next(filter(None, (name_problem("event", event), *problems)), None)


def topic_problem(topic: str) -> str | None:
    """A sentence, if a topic's name is too long."""
    if len(topic) <= LONGEST_NAME:
        return None
    return f"the topic {topic} has {len(topic)} characters, and {LONGEST_NAME} are the most; shorten {_PARTS}."


def queue_problem(queue: str) -> str | None:
    """A sentence, if the name of a listener's queue is too long, or that of its dead letters, on whatever broker."""
    longest = LONGEST_NAME - len(DEAD_LETTERS)
    if len(queue) <= longest:
        return None
    return (
        f"the queue {queue} has {len(queue)} characters, and {longest} are the most, because its dead letters are in "
        f"one that ends with {DEAD_LETTERS}; shorten the destination, {_PARTS}."
    )


_PARTS = "the name of the event, its source (the app's name), the infix or the env"
