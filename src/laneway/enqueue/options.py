"""EnqueueOptions: the options given to `using`. Item: a call in `enqueue_many`. InstanceSender: `app.using(…)`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import name_problem
from ..errors import EnqueueError
from ..handle import Handle, due
from ..jobs.data import Hints
from ..jobs.keys import UNSET, key_text, score_number
from ..tasks.signature import UnstorableValueError

if TYPE_CHECKING:
    from ..jobs.data import NewJob
    from ..tasks.task import Runnable
    from .build import Enqueuer

#: What SQS takes as a MessageGroupId: letters, digits and punctuation.
_GROUP = re.compile("[!-~]{1,128}")


class EnqueueOptions(msgspec.Struct, frozen=True):
    """What `using` was given."""

    queue: str | None = None
    delay_s: float = 0.0
    perform_at: float | None = None
    key: str | None = None
    score: float | None = None
    #: A delay or a time was given, be it 0.
    timed: bool = False
    hints: Hints | None = None

    def with_options(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
        key: object = UNSET,
        score: float | None = None,
        group: str | None = None,
        cancellable: bool | None = None,
    ) -> EnqueueOptions:
        """The same with what is given here in its place; raises EnqueueError for what cannot be."""
        if queue is not None and (problem := name_problem("queue", queue)):
            raise EnqueueError(problem)
        if group is not None and not (isinstance(group, str) and _GROUP.fullmatch(group)):
            raise EnqueueError(f"group must be 1 to 128 letters, digits or punctuation marks of ASCII, not {group!r}.")
        if cancellable is not None and not isinstance(cancellable, bool):
            raise EnqueueError(f"cancellable must be True or False, not {cancellable!r}.")
        when = due(delay, perform_at)
        delay_s, at = (self.delay_s, self.perform_at) if when is None else when
        try:
            return EnqueueOptions(
                self.queue if queue is None else queue,
                delay_s,
                at,
                self.key if key is UNSET else key_text(key),
                self.score if score is None else score_number(score),
                self.timed or when is not None,
                self._hints_with(group, cancellable),
            )
        except UnstorableValueError as error:
            raise EnqueueError(f"{error}.") from None

    def _hints_with(self, group: str | None, cancellable: bool | None) -> Hints | None:
        if group is None and cancellable is None:
            return self.hints
        hints = self.hints or Hints()
        return Hints(hints.group if group is None else group, hints.cancellable if cancellable is None else cancellable)


class Item:
    """One call in `enqueue_many`, for those that need options of their own: `Item("a.png", 200, perform_at=…)`.

    `key`, `score` and `perform_at` are always options; a parameter that is called so must be given by its position.
    """

    __slots__ = ("args", "key", "kwargs", "perform_at", "score")

    def __init__(
        self,
        *args: Any,
        key: object = UNSET,
        score: float | None = None,
        perform_at: float | datetime | None = None,
        **kwargs: Any,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.key = key
        self.score = score
        self.perform_at = perform_at


class InstanceSender:
    """`app.using(…)`: enqueues instances with options."""

    __slots__ = ("_app", "_sending")

    def __init__(self, app: Enqueuer, sending: EnqueueOptions) -> None:
        self._app = app
        self._sending = sending

    def enqueue(self, instance: Runnable, /) -> Handle:
        """Store a job that runs an instance of a task class."""
        return self._app.send([self._job(instance)])[0]

    def enqueue_many(self, instances: Iterable[Runnable], /) -> list[Handle]:
        """Store jobs for many instances of task classes, all checked before any is stored."""
        return self._app.send(self._app.all_or_none(self._job, instances))

    def _job(self, instance: Runnable) -> NewJob:
        return self._app.outgoing(instance, (), {}, sending=self._sending)
