"""What is declared as a task, looked at: its kind, its parameters, and the fields of its instances. Changes nothing."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any


def is_kind(kind: Callable[[Any], bool], target: Any) -> bool:
    """Whether a callable is of this kind, or its `__call__` is."""
    return kind(target) or kind(getattr(target, "__call__", None))  # noqa: B004 - its kind is asked for, not whether


def is_method(target: Any) -> bool:
    """Whether a function is being declared inside a class."""
    if not inspect.isfunction(target) or not target.__qualname__.rpartition("<locals>.")[2].count("."):
        return False
    return next(iter(inspect.signature(target).parameters), None) in ("self", "cls")


def positional(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def run_parameters(target: Any) -> list[inspect.Parameter]:
    """What must be handed to a class's run(): the context or nothing, if it can be a task."""
    bound = isinstance(inspect.getattr_static(target, "run"), (staticmethod, classmethod))
    parameters = list(inspect.signature(target.run).parameters.values())[0 if bound else 1 :]
    return [
        p
        for p in parameters
        if p.name == "context" or (p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    ]


def is_init_var(instance: Any, name: str) -> bool:
    field = getattr(instance, "__dataclass_fields__", {}).get(name)
    return field is not None and field not in dataclasses.fields(instance)


def has_fields(kind: type) -> bool:
    """Whether instances of a class have fields: see `fields_of`."""
    return (
        dataclasses.is_dataclass(kind)
        or any(hasattr(kind, name) for name in ("__struct_fields__", "model_fields", "__attrs_attrs__"))
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def fields_of(instance: Any) -> dict[str, Any] | None:
    """An instance's fields: dataclass, Struct, pydantic model, attrs class or NamedTuple."""
    if dataclasses.is_dataclass(instance):
        return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance) if field.init}
    if hasattr(instance, "__struct_fields__"):
        return {n: getattr(instance, n) for n in instance.__struct_fields__}
    if hasattr(type(instance), "model_fields"):
        known = inspect.signature(type(instance)).parameters
        fields = type(instance).model_fields.items()
        named = {n if n in known else field.alias or n: getattr(instance, n) for n, field in fields}
        return {**named, **(instance.model_extra or {})}
    if hasattr(instance, "__attrs_attrs__"):
        return {(a.alias or a.name): getattr(instance, a.name) for a in instance.__attrs_attrs__ if a.init}
    if isinstance(instance, tuple) and (names := getattr(instance, "_fields", None)):
        return dict(zip(names, instance, strict=True))
    return None
