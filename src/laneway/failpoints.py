"""Named places where a test may have something happen: a kill, an exception, a pause.

Nothing is armed in normal running, and a place then costs the look at an empty dict:

    if armed:
        reach("after claim")
"""

from __future__ import annotations

from collections.abc import Callable

#: What is to happen at each place; empty unless a test has armed some.
armed: dict[str, Callable[[], None]] = {}


def reach(place: str) -> None:
    """Do whatever is armed for this place."""
    act = armed.get(place)
    if act is not None:
        act()
