"""The boto3 clients, and what their errors mean."""

from __future__ import annotations

from typing import Any


class Clients:
    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
