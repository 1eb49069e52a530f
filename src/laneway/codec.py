"""Arguments as canonical JSON and back, typed by a callable's annotations.

Canonical: keys sorted, no spaces, UTF-8. What would not come back as it went in (NaN, a set for a parameter
that is not annotated as one, …) is refused here, when it is enqueued, rather than bent. Nothing is ever pickled.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from .errors import DeclarationError

Params = dict[str, Any]


def _encode_other(value: Any) -> Any:
    """Pydantic models are the one kind of value that msgspec does not know and people use."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"{type(value).__name__} cannot be stored as JSON")


def _decode_other(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be read from JSON")


_encoder = msgspec.json.Encoder(order="sorted", enc_hook=_encode_other)
encode: Callable[[Any], bytes] = _encoder.encode
decode: Callable[[bytes | str], Any] = msgspec.json.Decoder().decode


class Refused(ValueError):
    """A value does not fit, or would not survive being stored; the message says which and why."""


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
        self._positional = tuple(p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD)
        self._known, self._needed = frozenset(self.names), frozenset(self.required)
        self._decode = self._decoder(target, named)

    def _decoder(self, target: Callable[..., Any], named: list[inspect.Parameter]) -> Callable[[bytes], Params]:
        kinds = _annotations(target)
        fields: list[Any] = []
        for number, name in enumerate(self.names):
            # A field may be called anything in JSON; in Python `f0`, so that no parameter's name is in the way.
            kind = _decodable(kinds.get(name, Any))
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
        """Give every argument its name, as a call would; raises Refused with the sentence Python would use."""
        params = dict(zip(self._positional, args, strict=False))
        count = len(params)
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
                raise Refused(str(error)) from None
        return params

    def pack(self, params: Params) -> bytes:
        """Encode params, and see that a worker will get back what was given."""
        try:
            data = encode(params)
        except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
            raise Refused(_reason(error)) from None
        if not params:
            return b"null"
        back = self.unpack(data)
        if back != params:
            for name, value in params.items():
                if not _survived(value, back[name]):
                    raise Refused(
                        f"the argument {name} would come back as {_describe(back[name])} instead of "
                        f"{_describe(value)}; give plain JSON values, or annotate the parameter with its type"
                    )
        return data

    def unpack(self, data: bytes) -> Params:
        """Read params into arguments of the annotated types; raises Refused when they do not fit."""
        if data == b"null":
            data = b"{}"
        try:
            return self._decode(data)
        except (msgspec.DecodeError, ValueError, TypeError, NotImplementedError, RecursionError) as error:
            raise Refused(_reason(error)) from None


def _annotations(target: Callable[..., Any]) -> dict[str, Any]:
    """A callable's annotations; what cannot be resolved (a name imported for type checkers only) is left out."""
    sources: list[Any] = [target, target.__init__] if isinstance(target, type) else [target]
    kinds: dict[str, Any] = {}
    for source in sources:
        try:
            kinds.update(typing.get_type_hints(source, include_extras=True))
        except Exception:
            raw = getattr(source, "__annotations__", {})
            kinds.update((name, kind) for name, kind in raw.items() if not isinstance(kind, str))
    return kinds


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


def _survived(value: Any, back: Any) -> bool:
    """Whether `back` is what `value` was; objects that do not compare by value count by their encoding."""
    if value == back:
        return True
    if type(value) is not type(back) or isinstance(value, (str, bytes, float, int)):
        return False
    if isinstance(value, dict):
        return value.keys() == back.keys() and all(_survived(value[key], back[key]) for key in value)
    if isinstance(value, (list, tuple)):
        return len(value) == len(back) and all(map(_survived, value, back))
    return encode(value) == encode(back)


def _describe(value: Any) -> str:
    """A value by its type: values themselves never reach an error."""
    return "null" if value is None else type(value).__name__


def _reason(error: Exception) -> str:
    # Pydantic's messages repeat the value that was wrong; ours must not.
    if hasattr(error, "errors") and callable(error.errors):
        problem = error.errors()[0]
        return f"{problem.get('msg', 'invalid')} - at `{'.'.join(map(str, problem.get('loc', ())))}`"
    if isinstance(error, RecursionError):
        return "the value is nested too deeply"
    return str(error)
