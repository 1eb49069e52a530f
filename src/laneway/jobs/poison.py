"""Poison: what becomes of a job whose process dies while it runs. Pure decisions; counting is the broker's.

One death may be chance, or a neighbour's doing: the job just runs again. After the second it runs alone in a process
of its own, where nobody else can be to blame, and at the third it is buried. So a neighbour that was there by chance
runs to its end, and only the one that kills its process ends in the morgue.
"""

from __future__ import annotations

import signal

from .data import Claim, Kind, NewJob
from .settlement import Settlement, buried, postponed

#: With so many deaths a job runs alone in a process of its own.
ALONE_AFTER = 2
#: With so many it is buried.
BURIED_AT = 3
#: The exit code of a process that a job has left without its file descriptors. It can say nothing else.
DESCRIPTORS_CLOSED = 76


def deaths_of(claim: Claim, call: int = 0) -> int:
    """How often the process that ran this has died: a claim's, or one call's of a keyed claim."""
    return claim.payloads[call].deaths if claim.kind is Kind.KEYED else claim.deaths


def died(claim: Claim, ending: str, *, done: int = 0, outbox: list[NewJob] | None = None) -> Settlement:
    """The process that ran it, and nothing else, has ended as `ending` says: again at once, or the morgue."""
    deaths = deaths_of(claim, done) + 1
    if deaths >= BURIED_AT:
        settlement = buried(claim, too_many(deaths, ending), done=done, outbox=outbox)
    else:
        settlement = postponed(claim, 0.0, done=done, outbox=outbox)
    settlement.died = True
    return settlement


def too_many(deaths: int, ending: str) -> str:
    """Why such a job is in the morgue."""
    return f"The process that ran it died {deaths} times; the last time it {ending}."


def how_it_ended(status: int) -> str:
    """A process's exit status, negative for a signal as `subprocess` has it, in words that follow "it"."""
    if status == DESCRIPTORS_CLOSED:
        return "ended because a job had closed its file descriptors"
    if status >= 0:
        return f"ended by itself with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name} (signal {-status})" if name.startswith("SIG") else f"was killed by {name}"
