"""What is unwell on AWS."""

from __future__ import annotations

from typing import Any


def check(broker: Any) -> list[str]:
    raise NotImplementedError
