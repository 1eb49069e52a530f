"""Named places where a test makes something happen: a kill, an exception or a pause.

In normal running no place is armed, and reaching a place costs one look at an empty dict:

    if armed:
        reach("after claim")

A test that kills whole processes arms places through the environment:

    LANEWAY_FAILPOINTS="after claim=kill:0.01,mid job=kill:0.001"

Each time the process reaches the place, it is killed with that probability. LANEWAY_FAILPOINTS_SEED, together with
the process id, makes the chances repeatable. Only a worker process reads the two variables, when it starts.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping

from .errors import ConfigError

#: What is to happen at each place; empty unless a test has armed some.
armed: dict[str, Callable[[], None]] = {}


def reach(place: str) -> None:
    """Do whatever is armed for this place."""
    act = armed.get(place)
    if act is not None:
        act()


#: "inside settle" is inside SQLite's transaction. "inside enqueue" is there too, after each part of what is stored; a
#: single plain job is one statement and does not reach it. "inside call" is when Redis was asked and has not answered.
#: Those of the table are the poller's, between DynamoDB and SQS.
PLACES = (
    *("after claim", "mid job", "before settle", "inside settle", "after settle", "during renew", "after renew"),
    *("inside enqueue", "inside call"),
    *("after table claim", "before table send", "after table send", "before table delete"),
)


def arm_from_environment(environ: Mapping[str, str], *, kill: Callable[[], None] | None = None) -> None:
    """Arm what LANEWAY_FAILPOINTS says; raises ConfigError when it says nothing that can be done."""
    seed = environ.get("LANEWAY_FAILPOINTS_SEED")
    chance = random.Random(f"{seed}-{os.getpid()}" if seed else None)
    wanted = {place: _chance_of(each) for each in environ["LANEWAY_FAILPOINTS"].split(",") if (place := _place(each))}
    for place, probability in wanted.items():
        armed[place] = _killing(probability, chance, kill or _kill)


def _place(text: str) -> str:
    place = text.partition("=")[0].strip()
    if place not in PLACES:
        raise ConfigError(f"LANEWAY_FAILPOINTS: there is no place {place!r}; there are {', '.join(PLACES)}.")
    return place


def _chance_of(text: str) -> float:
    act, _, number = text.partition("=")[2].strip().partition(":")
    try:
        probability = float(number)
    except ValueError:
        probability = -1.0
    if act != "kill" or not 0 <= probability <= 1:
        raise ConfigError(f"LANEWAY_FAILPOINTS: write place=kill:0.01, with a probability from 0 to 1, not {text!r}.")
    return probability


def _killing(probability: float, chance: random.Random, kill: Callable[[], None]) -> Callable[[], None]:
    def act() -> None:
        if chance.random() < probability:
            kill()

    return act


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
