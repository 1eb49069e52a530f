"""The annotations of what is declared, evaluated as far as they can be."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any


def annotation_of(parameter: inspect.Parameter) -> Any:
    """A parameter's annotation as its signature has it; Any if that is none, or a text."""
    kind = parameter.annotation
    return Any if kind is parameter.empty or as_text(kind) else kind


def as_text(annotation: Any) -> str | None:
    """The text of an annotation that is to be evaluated later."""
    found = annotation.__forward_arg__ if isinstance(annotation, typing.ForwardRef) else annotation
    return found if isinstance(found, str) else None


def annotations_of(target: Callable[..., Any], wanted: frozenset[str]) -> dict[str, Any]:
    """A callable's annotations; one that cannot be resolved (imported for type checkers only) is left out."""
    while isinstance(target, functools.partial):
        target = target.func
    source: Any = inspect.unwrap(target)
    if not isinstance(source, type) and inspect.ismethod(called := getattr(source, "__call__", None)):  # noqa: B004 - it is looked at
        source = called  # of an instance that can be called
    sources = [source]
    if isinstance(target, type):
        sources = [*reversed(target.__mro__), inspect.getattr_static(target, "__init__")]
    kinds: dict[str, Any] = {}
    for source in sources:
        module = sys.modules.get(getattr(source, "__module__", None) or "")
        names = getattr(source, "__globals__", None) or vars(module or typing)
        for name in wanted.intersection(raw := getattr(source, "__annotations__", {})):
            # One at a time: a single name that is missing must not cost the others their types.
            one = types.SimpleNamespace(__annotations__={name: raw[name]})
            try:
                kinds.update(typing.get_type_hints(one, globalns=names, include_extras=True))
            except Exception:
                kinds.pop(name, None)
    return kinds
