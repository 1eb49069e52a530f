"""What `laneway aws create` says of each thing that it makes, or finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Level = Literal["made", "missing", "exists", "problem"]


class Step(msgspec.Struct):
    """What was made or found, or would be made (`missing`). A `problem` is left as it is, for somebody to mend."""

    level: Level
    text: str


Steps = Iterator[Step]


def problems(sentences: Iterable[str]) -> Steps:
    """A step for each of them."""
    return (Step("problem", sentence) for sentence in sentences)
