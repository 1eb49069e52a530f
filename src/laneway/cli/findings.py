"""What `laneway check` says: sentences, each at a level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec


class Finding(msgspec.Struct):
    """A sentence about the app or its broker. Only a problem makes it unwell."""

    level: Literal["ok", "note", "problem"]
    text: str


Findings = Iterator[Finding]
