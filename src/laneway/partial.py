"""A list of which only a part was stored: which items were not, by their places, so that they can be given again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, islice

from .errors import LanewayError
from .jobs.data import NewJob

#: The runs of places that a sentence names.
_NAMED = 6


def places_in_words(places: Sequence[int]) -> str:
    """Places of a list, in ascending order, kept short: `items 1, 4 and 10 to 24`."""
    # What stands together is as far from its number in the row as its neighbours are.
    together = [[place for _, place in run] for _, run in groupby(enumerate(places), lambda each: each[1] - each[0])]
    shown = list(islice(together, _NAMED))
    words = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in shown]
    more = len(places) - sum(map(len, shown))
    if more:
        words.append(f"{more:,} more")
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{'item' if len(places) == 1 else 'items'} {text}"


def tell_places(error: LanewayError, handed: Sequence[NewJob], items: Mapping[int, int]) -> None:
    """Have the error of a call say places in the list that a program gave.

    It says them in the list that the broker was handed: an event may have several jobs there, and a middleware may have
    taken some out. `items` has the place of each job's item, by the job's `id()`.
    """
    if error.unstored is None:
        return
    jobs = (handed[number] for number in error.unstored)
    given = sorted({items[id(job)] for job in jobs if id(job) in items})
    if given != error.unstored:
        error.unstored = given
        if given:
            error.args = (f"{error} In the list that was given that is {places_in_words(given)}.",)
