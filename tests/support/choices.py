"""The queues, keys and payloads of the state machine, and numbers read as choices among them.

They are few, so that jobs of one key meet often. Whole numbers say everything that a step does: a number is cheap to
draw, and a smaller number is a simpler step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from laneway.events.event import FilterPolicy, copy_key
from laneway.jobs.data import Claim, Debounce, Kind, NewJob
from laneway.jobs.merge import identity_of
from laneway.jobs.settlement import Settlement, buried, died, done, failed, postponed, released
from tests.support.model import KeyState

T = TypeVar("T")
Name = tuple[str, str]

START = 1_700_000_000.0
QUEUES: tuple[str, ...] = ("orders", "gather")
#: Every key has its kind; plain and keyed jobs may share a queue.
KINDS: dict[Name, Kind] = {
    ("orders", "k1"): Kind.KEYED,
    ("gather", "c1"): Kind.COLLECTING,
    ("orders", "p1"): Kind.PLAIN,
    ("orders", "k2"): Kind.KEYED,
    ("gather", "c2"): Kind.COLLECTING,
    ("gather", "c3"): Kind.COLLECTING,
    ("orders", "p2"): Kind.PLAIN,
}
NAMES = tuple(KINDS)
TOPICS = ("sold", "moved")
EVENTS = ("e1", "e2")
FILTERS: tuple[FilterPolicy | None, ...] = (None, {"country": ["DE"]}, {"country": ["PL", "DE"]}, None)
COUNTRIES = ("DE", "PL", None)
#: Where copies of events may be; nothing else is enqueued there.
COPIES: tuple[Name, ...] = tuple((queue, copy_key(id, queue)) for id in EVENTS for queue in QUEUES)
KINDS.update(dict.fromkeys(COPIES, Kind.PLAIN))
EVERYWHERE = (*NAMES, *COPIES)
#: Payloads of a key: numbers below this.
PAYLOADS = 4
#: (delay, perform_at in seconds after the start).
TIMES = ((0.0, None), (0.0, None), (5.0, None), (0.0, -30.0), (60.0, None), (0.0, 30.0))
#: (score, quiet) of a collecting payload.
SCORES = (
    (None, None),
    (1.0, None),
    (3.0, None),
    (2e9, None),
    (None, Debounce(grace_s=10.0)),
    (2.0, Debounce(grace_s=10.0, max_wait_s=15.0)),
    (None, Debounce(grace_s=10.0, max_size=2)),
)
OUTCOMES = ("done", "fail", "send", "exhaust", "fail", "release", "postpone", "exhaust", "bury", "die", "die")


class Choices:
    """A number, read as one choice after the other."""

    def __init__(self, number: int) -> None:
        self._number = number

    def below(self, count: int) -> int:
        """A number below `count`; 0 when nothing is left to choose by."""
        self._number, choice = divmod(self._number, count)
        return choice

    def of(self, options: Sequence[T]) -> T:
        """One of the options; the first is the simplest."""
        return options[self.below(len(options))]


def identity(name: Name, number: int) -> str:
    """What makes payload `number` of a key the same."""
    return f"{name[1]}-call-{number}" if KINDS[name] is Kind.KEYED else identity_of(_body(Kind.COLLECTING, number))


def _body(kind: Kind, number: int) -> str:
    return f'"v{number}"' if kind is Kind.COLLECTING else f'{{"call":{number}}}'


def due(choices: Choices) -> tuple[float, float | None]:
    """A delay, or a time."""
    delay_s, after = choices.of(TIMES)
    return delay_s, None if after is None else START + after


def new_job(name: Name, state: KeyState, choices: Choices, kind: Kind | None = None) -> NewJob:
    """A job for a key of which `state` is known."""
    queue, key = name
    kind = KINDS[name] if kind is None else kind
    number = choices.below(PAYLOADS)
    delay_s, at = due(choices)
    if kind is Kind.PLAIN:
        new = NewJob(queue=queue, key=key, body='{"plain":true}', delay_s=delay_s, perform_at=at)
        new.priority = 5 if key == "p2" else 0
        new.headers = {"trace": key} if key == "p1" else None
        return new
    new = NewJob(queue=queue, key=key, body=_body(kind, number), kind=kind, delay_s=delay_s, perform_at=at)
    if kind is Kind.KEYED:
        new.identity = f"{key}-call-{number}"
        new.headers = {"trace": new.identity} if number == 1 else None
        for entry in (*state.running, *(state.dead.entries if state.dead else ())):
            if entry.identity == new.identity:
                new.perform_at = entry.perform_at  # a call has one due time for as long as it is known
        return new
    new.identity = identity_of(new.body)
    new.score, quiet = choices.of(SCORES)
    new.quiet = quiet if at is None and not delay_s else None
    return new


def settlement(claim: Claim, choices: Choices, sent: NewJob) -> Settlement:
    """One of the ends that the core may decide on for a claim; `sent` is what a run enqueued that did."""
    outcome = choices.of(OUTCOMES)
    finished = choices.below(3)
    finished = min(finished, len(claim.payloads) - 1) if claim.kind is Kind.KEYED else 0
    outbox = [sent] if outcome == "send" or (finished and choices.below(2)) else None
    match outcome:
        case "done" | "send":
            return done(claim, outbox)
        case "fail":
            return failed(claim, f"{claim.key} failed", 2, 20.0, done=finished, outbox=outbox)
        case "exhaust":
            return failed(claim, f"{claim.key} was tried for the last time", 0, 0.0, done=finished, outbox=outbox)
        case "bury":
            return buried(claim, f"{claim.key} asked for the morgue", done=finished, outbox=outbox)
        case "die":
            end = died(claim, "ended", done=finished, outbox=outbox)
            if choices.below(3) == 2:  # a worker of one's own may be less patient
                end = buried(claim, f"{claim.key} ended its process", done=finished, outbox=outbox)
                end.died = True
            return end
        case "postpone":
            return postponed(claim, 10.0 * choices.below(2), done=finished, outbox=outbox)
        case _:
            return released(claim, done=finished, outbox=outbox)
