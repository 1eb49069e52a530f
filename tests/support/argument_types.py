"""Argument types and class tasks for tests, one of every kind that users write."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Shape(StrEnum):
    ROUND = "round"


@dataclass
class Point:
    x: int
    at: datetime | None = None


@dataclass(eq=False)
class Nameless:
    """Two of them are never equal."""

    x: int


@dataclass
class Loose:
    anything: Any


@dataclass
class Picky:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise KeyError(f"no {self.x}")


class Packed(msgspec.Struct):
    x: int
    tags: set[str] = msgspec.field(default_factory=set)


@attrs.define
class Classy:
    x: int
    _hidden: str = "no"


class Model(pydantic.BaseModel):
    x: int
    at: datetime | None = None
    name: str = pydantic.Field(default="", alias="Name")

    @pydantic.computed_field
    def double(self) -> int:
        return self.x * 2


class Pair(NamedTuple):
    x: int
    y: str


class Movie(TypedDict):
    title: str
    year: int
