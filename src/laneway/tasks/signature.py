"""Signature: reads a callable's parameters, and converts arguments to canonical JSON and back.

The annotations give the types. An annotation that cannot be evaluated (imported for type checkers only) is left out.
Canonical JSON has sorted keys, no spaces, and is UTF-8. A value that would not come back as it was (NaN, a set for a
parameter that is not annotated as a set) is refused when it is enqueued, never changed silently. Nothing is ever
pickled. Reading a callable does not change it.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import msgspec

from ..errors import DeclarationError, text_of


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


Params = dict[str, Any]

#: Deeper values are refused when they are enqueued: a worker's stack might not be able to read them.
DEEPEST = 100


class UnstorableValueError(ValueError):
    """A value does not fit, or would not survive being stored; the message says which and why."""


def _encode_other(value: Any) -> Any:
    """Pydantic models are the one kind of value that msgspec does not know and people use."""
    if not hasattr(value, "model_dump"):
        raise UnstorableValueError(f"{type(value).__name__} cannot be stored as JSON; give plain values")
    try:
        return value.model_dump(mode="json", by_alias=True, round_trip=True)
    except Exception as error:
        raise UnstorableValueError(f"{type(error).__name__} was raised by {type(value).__name__}") from error


def _decode_other(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise UnstorableValueError(f"{kind.__name__} cannot be read from JSON; annotate the parameter with a type that can")


_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_encode_other)
encode: Callable[[Any], bytes] = _encoder.encode
decode: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode


class Signature:
    """The parameters of a task: how a call's arguments become params, bytes, and arguments again."""

    def __init__(self, owner: str, target: Callable[..., Any], *, skip: int = 0) -> None:
        parameters = list(inspect.signature(target).parameters.values())[skip:]
        for parameter in parameters:
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise DeclarationError(
                    f"Task {owner}: arguments are stored by name, so the parameter {parameter.name} cannot be "
                    "positional-only or *args; make it an ordinary parameter."
                )
        self._signature = inspect.Signature(parameters)
        self.open = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        self.names = tuple(p.name for p in named)
        self.required = tuple(p.name for p in named if p.default is p.empty)
        self.defaults = {p.name: p.default for p in named if p.default is not p.empty}
        self._positional = tuple(p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD)
        self._known, self._needed = frozenset(self.names), frozenset(self.required)
        # With so many positional arguments, and no others, nothing is missing.
        self._enough = len(named) if self._needed.difference(self._positional) else len(self.required)
        annotations = annotations_of(target, self._known)
        #: The parameters' annotations as they were written, and the texts of those that cannot be evaluated.
        self.kinds = {p.name: annotations.get(p.name, annotation_of(p)) for p in named}
        texts = {p.name: as_text(p.annotation) for p in named if p.name not in annotations}
        self.unresolved = {name: text for name, text in texts.items() if text is not None}
        kinds = [_decodable(kind) for kind in self.kinds.values()]
        self._sure = {p.name: _surely_surviving(kind) for p, kind in zip(named, kinds, strict=True)}
        self._decode = self._decoder(kinds, named)

    def _decoder(self, kinds: list[Any], named: list[inspect.Parameter]) -> Callable[[bytes], Params]:
        fields: list[Any] = []
        for number, kind in enumerate(kinds):
            # A field may be called anything in JSON; in Python `f0`, so that no parameter's name is in the way.
            optional = named[number].default is not inspect.Parameter.empty
            fields.append((f"f{number}", kind, msgspec.UNSET) if optional else (f"f{number}", kind))
        fields.sort(key=len)
        order = [int(field[0][1:]) for field in fields]
        shape = msgspec.defstruct(
            "Params",
            fields,
            rename={f"f{number}": name for number, name in enumerate(self.names)}.get,
            forbid_unknown_fields=not self.open,
        )
        names = tuple(self.names[number] for number in order)
        typed = msgspec.json.Decoder(shape, dec_hook=_decode_other).decode
        astuple, some_optional, unset = (
            msgspec.structs.astuple,
            len(self.required) < len(names),
            msgspec.UNSET,
        )
        untyped, known, is_open = decode, self._known, self.open

        def read(data: bytes) -> Params:
            params = dict(zip(names, astuple(typed(data)), strict=True))
            if some_optional:
                params = {name: value for name, value in params.items() if value is not unset}
            if is_open:
                params.update((name, value) for name, value in untyped(data).items() if name not in known)
            return params

        return read

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Params:
        """Give each argument its name, as a call would. Raises UnstorableValueError with the sentence of Python."""
        params = dict(zip(self._positional, args))  # noqa: B905 - saying strict=False costs as much as the rest
        count = len(params)
        if not kwargs and self._enough <= count == len(args):
            return params
        params.update(kwargs)
        if (
            count != len(args)
            or len(params) != count + len(kwargs)
            or not (self.open or self._known.issuperset(params))
            or not self._needed.issubset(params)
        ):
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise UnstorableValueError(str(error)) from None
        return params

    def pack(self, params: Params) -> bytes:
        """Encode params, and see that a worker will get back what was given."""
        if not params:
            return b"null"
        data = _encoded(params)
        sure = self._sure
        for name, value in params.items():
            if type(value) not in sure.get(name, ()):
                self._compare(params, self.unpack(data))
                break
        return data

    def read_back(self, params: Params) -> Params:
        """The arguments that a worker will make of params which may be JSON already, as those of a to_dict() are."""
        data = _encoded(params)
        back = self.unpack(data)
        if _type_difference(params, decode(data)):
            self._compare(params, back)
        return back

    def _compare(self, params: Params, back: Params) -> None:
        for name, value in params.items():
            if how := _type_difference(value, back[name]):
                remedy = _remedy(
                    how, "annotate the parameter with its type, imported where it is also found at run time"
                )
                raise UnstorableValueError(
                    f"the argument {name} would come back with {how}; give plain JSON values, or {remedy}"
                )

    def unpack(self, data: bytes) -> Params:
        """Read params into arguments of the annotated types; raises UnstorableValueError when they do not fit."""
        if data == b"null":
            data = b"{}"
        try:
            return self._decode(data)
        except Exception as error:  # a type's own checks may raise anything
            raise UnstorableValueError(_reason(error)) from None


class ValueCodec:
    """The type of a single value: how it becomes canonical JSON and a value again. What Signature is to arguments.

    `what` it is, and `remedy`, are for the sentence that refuses one.
    """

    def __init__(
        self,
        kind: Any = Any,
        what: str = "payload",
        remedy: str = "annotate the handler's batch with its type, as in Batch[Order], imported where it is also found "
        "at run time",
    ) -> None:
        self.kind = _decodable(kind)
        self._what = what
        self._remedy = remedy
        self._decode = msgspec.json.Decoder(self.kind, dec_hook=_decode_other).decode
        self._sure = _surely_surviving(self.kind)

    def pack(self, value: Any) -> str:
        """Encode a value, and see that it will come back as it is; raises UnstorableValueError when it will not."""
        data = _encoded(value)
        if type(value) not in self._sure:
            back = self.unpack(data)
            if how := _type_difference(value, back):
                remedy = _remedy(how, self._remedy)
                raise UnstorableValueError(
                    f"the {self._what} would come back with {how}; give plain JSON values, or {remedy}"
                )
            if self.kind is not Any:
                data = encode(back)  # 1 and 1.0 are the same value where a float is meant, and so the same bytes
        return data.decode()

    def unpack(self, data: bytes | str) -> Any:
        """Read a value of this type; raises UnstorableValueError when it does not fit."""
        try:
            return self._decode(data)
        except Exception as error:  # a type's own checks may raise anything
            raise UnstorableValueError(_reason(error)) from None

    def takes(self, value: Any) -> bool:
        """Whether a value would come back as it is."""
        try:
            self.pack(value)
        except UnstorableValueError:
            return False
        return True


def _encoded(value: Any) -> bytes:
    try:
        return encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnstorableValueError(_reason(error)) from None


def _decodable(kind: Any) -> Any:
    """The type itself if msgspec can decode into it, else Any: the value then stays plain JSON."""
    try:
        msgspec.json.Decoder(kind, dec_hook=_decode_other)
        info: Any = msgspec.inspect.type_info(kind)
    except Exception:
        return Any
    if isinstance(info, msgspec.inspect.CustomType) and not hasattr(info.cls, "model_validate"):
        return Any
    return kind


def _surely_surviving(kind: Any) -> frozenset[type]:
    """The types whose values, for a parameter of this kind, come back as they are: they need not be read back."""
    if typing.get_origin(kind) is typing.Annotated and not any(isinstance(m, msgspec.Meta) for m in kind.__metadata__):
        return _surely_surviving(kind.__origin__)
    if kind is Any:
        return frozenset((str, int, bool, types.NoneType))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return frozenset().union(*map(_surely_surviving, typing.get_args(kind)))
    return frozenset((kind,)) if kind in (str, int, bool, types.NoneType) else frozenset()


def _type_difference(value: Any, back: Any, depth: int = 1) -> str | None:
    """How `back` differs from `value`, by types only: values themselves never reach an error."""
    if depth > DEEPEST:
        raise UnstorableValueError(
            f"a value is nested more than {DEEPEST} levels deep; store it elsewhere and give where it is"
        )
    if isinstance(value, dict) and isinstance(back, dict):
        if value.keys() != back.keys():
            return "other keys"
        pairs = [(value[key], back[key]) for key in value]
    elif isinstance(value, (list, tuple)) and type(value) is type(back) and len(value) == len(back):
        pairs = list(zip(value, back, strict=True))
    elif _equal(value, back):
        return None
    elif type(value) is type(back):
        return _field_difference(value, back, depth) or f"another {_describe(value)} than it was"
    else:
        return f"{_describe(back)} instead of {_describe(value)}"
    return next((how for one, other in pairs if (how := _type_difference(one, other, depth + 1))), None)


def _field_difference(value: Any, back: Any, depth: int) -> str | None:
    """Which field of an object differs, and how; its type may leave open what that field holds."""
    given, found = fields_of(value) or {}, fields_of(back) or {}
    for name, each in given.items():
        if name in found and (how := _type_difference(each, found[name], depth + 1)):
            return f"{how}{_IN_FIELD}{name}"
    return None


_IN_FIELD = " in its field "


def _remedy(how: str, otherwise: str) -> str:
    """What to do about what would be bent: the type of an object does not help if a field of it leaves its own open."""
    return "annotate that field with its type" if " instead of " in how and _IN_FIELD in how else otherwise


def _equal(value: Any, back: Any) -> bool:
    alike = type(value) is type(back)
    if isinstance(value, (Enum, bool)):
        return alike and bool(value == back)  # 1 equals True, and an IntEnum equals its number
    if value == back:
        return True
    # Objects that do not compare by value count by their encoding.
    compares = inspect.getattr_static(value, "__eq__") is not inspect.getattr_static(object, "__eq__")
    return alike and not compares and encode(value) == encode(back)


def _describe(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _reason(error: Exception) -> str:
    """What went wrong, without the value: msgspec, pydantic and a type's own checks repeat it in their messages."""
    if isinstance(error, RecursionError):
        return "a value is nested too deeply, or holds itself"
    if isinstance(error, UnicodeEncodeError):
        return "a text holds half of a surrogate pair, which cannot be stored; give valid Unicode"
    text = text_of(error)
    place = "".join(text.rpartition(" - at `")[1:]) if " - at `" in text else ""
    cause = error.__cause__
    if isinstance(cause, UnstorableValueError):
        return f"{cause}{place}"
    if cause is not None and not isinstance(error, UnstorableValueError):
        return f"{type(cause).__name__} was raised by its type{place}"
    if text.startswith("Only dicts with str keys"):
        return "a dict has keys that are not text, and JSON knows no others; give text, or a list of pairs"
    if text.startswith(("Invalid enum value", "Invalid value")):
        return f"it is none of the values that the type allows{place}"
    if isinstance(error, (msgspec.MsgspecError, UnstorableValueError, TypeError, OverflowError)):
        return text
    return f"{type(error).__name__} was raised by its type"
