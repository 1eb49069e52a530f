"""Middleware: code around enqueueing, deserialization and execution, written as generators.

A middleware method yields exactly once. The code before the yield runs before the step, the code after it runs after
the step, and an error inside the step is raised at the yield. The same generator serves sync and async tasks.

    class Timing(Middleware):
        def around_execution(self, call, context):
            began = time.monotonic()
            try:
                yield
            finally:
                context.logger.info("took %.3f s", time.monotonic() - began)

The first middleware is the outermost. If a generator ends without a yield, the step inside it is not carried out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .context import Context
    from .jobs.data import Claim, NewJob
    from .jobs.ticket import Call

Around = Generator[None, Any, Any]


class Middleware:
    """Subclass it and write the methods you need; those left out cost nothing."""

    def around_enqueue(self, jobs: list[NewJob]) -> Around:
        """Around the storing of `jobs`, which may be changed before the yield (their headers, say)."""
        yield

    def around_deserialization(self, body: str, claim: Claim) -> Around:
        """Around reading a body; the yield gives the Call, or None for a body that is to be deleted."""
        yield

    def around_execution(self, call: Call, context: Context) -> Around:
        """Around the handler; the yield gives what the handler returned, or raises what it raised."""
        yield


class MiddlewareStack:
    """The generators of one step, entered and left in order. Made anew for each step."""

    __slots__ = ("_entered", "_makers")

    def __init__(self, makers: Sequence[Callable[[], Around]]) -> None:
        self._makers = makers
        self._entered: list[Around] = []

    def enter(self) -> bool:
        """Run everything up to the yields. False if one of them did not call on."""
        for make in self._makers:
            generator = make()
            if not isinstance(generator, Generator):
                raise TypeError("a middleware's method must be a generator: write a yield where it is to call on")
            try:
                next(generator)
            except StopIteration:
                return False
            self._entered.append(generator)
        return True

    def leave(self, result: Any, error: BaseException | None) -> Any:
        """Run everything after the yields, innermost first; returns the result or raises the error that is left."""
        while self._entered:
            generator = self._entered.pop()
            try:
                if error is None:
                    generator.send(result)
                else:
                    generator.throw(error)
            except StopIteration:
                error = None  # it returned: whatever was raised inside has been dealt with
            except BaseException as raised:
                error = raised
            else:
                error = _ended(generator)
        if error is None:
            return result
        try:
            raise error
        finally:
            del error  # its traceback leads to this frame: else the two would wait for the garbage collector


def _ended(generator: Around) -> BaseException:
    """End a generator that yields more than once, and say so."""
    name = getattr(generator, "__qualname__", type(generator).__name__)
    try:
        generator.close()
    except BaseException:
        pass  # whatever it says at its end, the error is that it did not end before
    return RuntimeError(f"the middleware {name} yields more than once")


def overriding(middleware: Sequence[Middleware], method: str) -> list[Callable[..., Around]]:
    """The bound methods named `method` of those middlewares that really have one of their own."""
    base = getattr(Middleware, method)
    return [getattr(each, method) for each in middleware if getattr(type(each), method, base) is not base]


def surround(
    methods: Sequence[Callable[..., Around]], args: tuple[Any, ...], step: Callable[[], Any]
) -> tuple[bool, Any]:
    """Carry out `step` inside `methods`. Returns whether it was reached, and its result."""
    stack = MiddlewareStack([functools.partial(method, *args) for method in methods])
    error: BaseException | None = None
    result = None
    reached = False
    try:
        if reached := stack.enter():
            result = step()
    except BaseException as raised:
        error = raised
    try:
        return reached, stack.leave(result, error)
    finally:
        del error  # as in MiddlewareStack.leave
