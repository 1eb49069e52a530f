"""What a settlement means on SQS: which messages are sent, deleted and hidden, and in which order. Pure decisions.

A plain job that is run again is sent anew, because what is known of it can only travel with a message, and the old
message is deleted. A keyed call stays where it is, at the head of its group: it is hidden until its time, and what is
known of it is kept beside it. Nothing is deleted before it is in its next place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ...job import Kind
from ...outcome import Settlement
from ..common import again_at, storable
from .changes import Change
from .holding import Held
from .messages import Message, Outgoing, again, fitted, size_of
from .records import Record
from .sending import Dispatch
from .states import State
from .stock import Claimed

#: What cannot be buried is tried again after so many seconds.
UNBURIED_S = 900.0


class Plan:
    """The steps by which one claim is settled, and how many of them have been taken."""

    def __init__(self, claimed: Claimed) -> None:
        self.claimed = claimed
        #: What is kept beside messages that stay.
        self.states: dict[str, State] = {}
        #: Messages that are sent anew, to be run again.
        self.copies: list[Dispatch] = []
        #: Messages for the dead-letter queue.
        self.letters: list[Outgoing] = []
        #: Ids of which nothing is to be kept any longer: those that are sent anew, and those that have ended.
        self.moved: list[str] = []
        self.ended: list[str] = []
        #: How jobs ended, to be kept where there is a place for that.
        self.records: dict[str, Record] = {}
        #: Deletes, and the hiding of a head; then what stands behind a head, which is hidden by then.
        self.first: list[Change] = []
        self.then: list[Change] = []
        #: Versions that are not to be run again.
        self.over: list[Message] = []
        #: What was not begun and waits for the next turn.
        self.kept: list[Held] = []
        #: What waits in the group behind the claim, and is given back with it.
        self.behind: list[Held] = []
        #: Whether it could be settled as it was said; else its key is told as refused.
        self.is_refused = False

    def leaving(self) -> list[Held]:
        """All that is in our hands no more when it is settled."""
        kept = {id(held) for held in self.kept}
        return [held for held in [*self.claimed.held, *self.behind] if id(held) not in kept]


def plan(claimed: Claimed, settlement: Settlement, now: float, monotonic: float, limit: int) -> Plan:
    """The steps of a settlement. `limit` is the largest message; takes what waits behind the claim if that goes too."""
    made = Plan(claimed)
    verdict = settlement.verdict
    count = len(claimed.held)
    done = count if verdict == "done" else min(max(settlement.done, 0), count)
    if claimed.claim.kind is Kind.PLAIN and verdict != "done":
        done = 0  # it is one payload, whatever is said of it
    for held in claimed.held[:done]:
        _end(made, held, now)
    rest = claimed.held[done:]
    if not rest:
        return made
    if verdict == "bury":
        buried = 1 if claimed.group is None else max(settlement.buried, 0)
        for number, held in enumerate(rest[:buried]):
            _bury(made, held, settlement, now, limit, died=settlement.died and not number)
        made.kept = rest[buried:]
    elif verdict == "release":
        if done:
            made.kept = rest
        else:
            made.first += [Change(held.message, 0) for held in [*rest, *_behind(made)]]
    else:
        _again(made, rest[0], settlement, now, monotonic, limit)
        made.then += [Change(held.message, 0) for held in [*rest[1:], *_behind(made)]]
    for held in made.leaving()[done:]:
        _twins(made, held)
    return made


def refusal(claimed: Claimed, monotonic: float) -> Plan:
    """A claim that came too late: what of it is still ours goes back."""
    made = Plan(claimed)
    made.is_refused = True
    ours = [held for held in [*claimed.held, *_behind(made)] if held.is_ours(monotonic)]
    made.first = [Change(held.message, 0) for held in ours]
    return made


def _end(made: Plan, held: Held, now: float) -> None:
    made.records[held.id] = Record("done", now)
    made.first.append(Change(held.message))
    made.first += [Change(twin) for twin in held.twins]
    made.over += [held.message, *held.twins]
    if held.has_state:
        made.ended.append(held.id)


def _twins(made: Plan, held: Held) -> None:
    """Of what says the same as a job that goes on, one is enough; a later version of it has its own life."""
    for twin in held.twins:
        same = (twin.note.attempt, twin.note.hop) == (held.message.note.attempt, held.message.note.hop)
        made.first.append(Change(twin, None if same else 0))


def _bury(made: Plan, held: Held, settlement: Settlement, now: float, limit: int, *, died: bool) -> None:
    error = storable(settlement.error)
    letter = again(
        held.message,
        retry_count=settlement.retry_count,
        attempt=held.attempt + 1,
        deaths=held.deaths + died,
        error=error,
        buried_at=now,
        queue=held.message.channel.queue,
    )
    letter = fitted(letter, limit)
    if size_of(letter) > limit:
        # It has hardly room for the ticket: then as it came, which did fit.
        letter = Outgoing(held.message.body, held.message.note, held.message.attributes)
    made.letters.append(letter)
    made.records[held.id] = Record("dead", now)
    made.first.append(Change(held.message))
    made.over.append(held.message)
    if held.has_state:
        made.ended.append(held.id)


def _again(made: Plan, held: Held, settlement: Settlement, now: float, monotonic: float, limit: int) -> None:
    """Retry or postpone the first payload that is not finished."""
    at = again_at(now, settlement.delay_s)
    delay_s = max(0.0, at - now)
    known = State(
        retry_count=settlement.retry_count,
        attempt=held.attempt + 1,
        deaths=held.deaths + settlement.died,
        error=storable(settlement.error) if settlement.verdict == "retry" else held.error,
        not_before=at,
    )
    room_s = max(0, math.floor(held.hideable_until - monotonic))
    if not held.is_keyed and (settlement.verdict == "retry" or delay_s > room_s):
        copy = fitted(_copy(held.message, known), limit)
        if size_of(copy) <= limit:
            made.copies.append(Dispatch(held.message.channel.queue, False, copy, at))
            made.first.append(Change(held.message))
            made.over.append(held.message)
            if held.has_state:
                made.moved.append(held.id)
            return
        # It has hardly room for the ticket, and stays where it is.
    known.deaths -= held.message.note.deaths
    made.states[held.id] = known
    made.first.append(Change(held.message, min(math.ceil(delay_s), room_s)))


def _copy(message: Message, known: State) -> Outgoing:
    return again(
        message,
        retry_count=known.retry_count,
        attempt=known.attempt,
        deaths=known.deaths,
        error=known.error,
        due=known.not_before,
    )


def _behind(made: Plan) -> Sequence[Held]:
    """Take what waits in the group behind the claim: it must not be run before what stands before it."""
    group = made.claimed.group
    if group is not None:
        made.behind += group.clear()
    return made.behind


def unburied(settlement: Settlement) -> Settlement:
    """What becomes of a job that is to be buried when there is no dead-letter queue: it stays, and is tried again."""
    return msgspec.structs.replace(settlement, verdict="postpone", delay_s=UNBURIED_S, buried=0)
