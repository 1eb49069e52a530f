"""What may be declared, as far as tasks of every kind and listeners agree: names, handlers, lists."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from ..errors import DeclarationError
from .collecting import Collecting
from .listener import Listener
from .targets import is_kind, is_method
from .task import Task


def name_of(target: Any, name: str | None, aliases: tuple[str, ...] = (), what: str = "task") -> str:
    """The name under which something is declared; raises DeclarationError for one that cannot be."""
    if isinstance(target, (Task, Collecting, Listener)):
        kind = "listener" if isinstance(target, Listener) else "task"
        raise DeclarationError(f"{target.name} is a {kind} already; declare it once.")
    name = name if name is not None else getattr(target, "__name__", None)
    for each in (name, *aliases):
        if not isinstance(each, str) or not each.isprintable() or not 1 <= len(each) <= 200:
            raise DeclarationError(f"A {what}'s name must be 1 to 200 printable characters, not {each!r}.")
    assert isinstance(name, str)
    if name == "<lambda>":
        raise DeclarationError("A lambda has no name to be found by; give it one with name=… or use def.")
    if is_method(target):
        raise DeclarationError(
            f"{what.capitalize()} {name}: a method cannot be a {what}, because nothing says which instance it belongs "
            f"to; declare a function{', or the class with a run()' if what == 'task' else ''}."
        )
    return name


def see_no_generator(name: str, handler: Any, what: str = "task") -> None:
    """Raise DeclarationError for a handler that yields."""
    if is_kind(inspect.isgeneratorfunction, handler) or is_kind(inspect.isasyncgenfunction, handler):
        raise DeclarationError(
            f"{what.capitalize()} {name}: a generator does nothing when it is called; a {what} must not yield."
        )


def several(what: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """What was given as a list; raises DeclarationError for one thing alone."""
    if isinstance(values, (str, type)) or not isinstance(values, Iterable):
        raise DeclarationError(f"{what} must be a list, even of one; write {what}=[…].")
    return tuple(values)
