"""Key, the mark of a key parameter; and the checks of keys and scores.

Every check of a key or a score is here, so that the API, changes by a middleware and every broker agree.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from ..errors import DeclarationError
from ..tasks.signature import UnstorableValueError
from .merge import LARGEST_SCORE

#: Stands for a key that was not given: None would be one that somebody forgot to fill in.
UNSET = msgspec.UNSET
#: The longest key in bytes.
MAX_KEY = 512

#: How an object without a text of its own is shown: by where it lies in memory, which is elsewhere next time.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
#: An annotation that could not be evaluated, and that was to mark a key.
_MARKED = re.compile(r"\bAnnotated\s*\[.*\bKey\b", re.DOTALL)


class Key:
    """Marks the parameter that names what a call is about: `order: Annotated[str, Key]`.

    Calls of one key run in order and one at a time. With several such parameters the key is all of them, joined
    by ":" in the order of their declaration.
    """


def key_parameters(owner: str, kinds: Mapping[str, Any], unresolved: Mapping[str, str]) -> tuple[str, ...]:
    """The parameters that are marked with Key; raises DeclarationError for marks that would mean nothing."""
    for name, text in unresolved.items():
        if _MARKED.search(text):
            raise DeclarationError(
                f"Task {owner}: the annotation {text} of {name} cannot be evaluated, so its Key would be lost; import "
                "what it names where it is also found at run time."
            )
    found = []
    for name, kind in kinds.items():
        if typing.get_origin(kind) is Annotated and any(_is_mark(each) for each in kind.__metadata__):
            found.append(name)
        elif _holds_mark(kind):
            raise DeclarationError(
                f"Task {owner}: the Key of {name} must be the outermost of its annotation, as in Annotated[str, Key]."
            )
    return tuple(found)


def _is_mark(value: Any) -> bool:
    return value is Key or isinstance(value, Key)


def _holds_mark(kind: Any) -> bool:
    parts = (*typing.get_args(kind), *getattr(kind, "__metadata__", ()))
    return _is_mark(kind) or any(map(_holds_mark, parts))


def key_text(value: object) -> str:
    """A value as the text of a key; raises UnstorableValueError for what cannot be one."""
    if isinstance(value, str):
        text = str(value)
    elif value is None or isinstance(value, (bytes, bytearray, memoryview, dict, set, frozenset)):
        # They have a text, and it is not the one that is meant, or equal ones have different texts.
        raise UnstorableValueError(f"key must be text or something with a text of its own, not {type(value).__name__}")
    else:
        try:
            text = str(value)
        except Exception as error:
            raise UnstorableValueError(
                f"key must have a text, and {type(error).__name__} was raised by str() of {type(value).__name__}"
            ) from error
        if _ADDRESS.search(text):
            raise UnstorableValueError(
                f"key must have a text of its own, and {type(value).__name__} has only its address in memory; give it "
                "a __str__() or use one of its attributes"
            )
    if problem := key_problem(text):
        raise UnstorableValueError(f"key {problem}")
    return text


def key_problem(text: str) -> str | None:
    """What is wrong with the text of a key, if anything is."""
    if text.isascii() and 1 <= len(text) <= MAX_KEY and "\0" not in text:
        return None
    if not text:
        return "must not be empty"
    if "\0" in text:
        return "must not hold a NUL character"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "holds half of a surrogate pair; give valid Unicode"
    return f"is {size} bytes, and may be {MAX_KEY} at most; give a digest of it" if size > MAX_KEY else None


def score_number(value: object) -> float:
    """A value as a score; raises UnstorableValueError for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UnstorableValueError(f"score must be a number, not {type(value).__name__}")
    if problem := score_problem(value):
        raise UnstorableValueError(f"score {problem}")
    return float(value)


def score_problem(value: float) -> str | None:
    """What is wrong with a score, if anything is."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"must be a finite number, not {value}"
    if not -LARGEST_SCORE <= value <= LARGEST_SCORE:
        return f"must be within ±{LARGEST_SCORE:g}"
    return None
