"""Laneway, the app: checks its options and holds its registry, broker, serializer and middleware.

The decorators come from `tasks/`, enqueueing from `enqueue/` and publishing from `events/`.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .config import DEFAULT_QUEUE, raise_problems
from .context import Context
from .enqueue.build import Enqueuer
from .enqueue.pipeline import EnqueuePipeline
from .errors import ConfigError
from .events.event import DEFAULT_INFIX
from .events.names import is_development, names_of
from .events.publish import Publisher
from .jobs.ticket import Serializer, takes_id
from .middleware import Middleware
from .tasks.declare import TaskDeclarations
from .tasks.declare_listener import ListenerDeclarations
from .tasks.registry import Registry
from .urls import check_url

if TYPE_CHECKING:
    from .broker import CoreBroker
    from .origin import Origin

ErrorHandler = Callable[[BaseException, Context], object]


class Laneway(TaskDeclarations, ListenerDeclarations, Enqueuer, Publisher):
    """An app: its tasks, its broker, and what surrounds them.

    Args:
        url: The broker; without one LANEWAY_URL, SQS_QUEUE_URL, REDIS_URL, else sqlite:///laneway.db.
        name: The app's name: the source of what it publishes, and part of the names of its listeners' queues.
        env: Stands at the end of the names of topics and their queues, so that environments do not hear each other;
            LANEWAY_ENV, if it is not given.
        infix: Stands in the same names; "eventboss", as in its Ruby and JavaScript relatives, unless given.
        development: Have what is missing be made by whoever needs it, as on AWS; LANEWAY_DEVELOPMENT=1 says so, too.
        broker: A ready broker instead of a URL.
        serializer: A Serializer class (or a function of the registry) that reads and writes bodies.
        logger: Where the worker and `context.logger` write; `logging.getLogger("laneway")` by default.
        middleware: Outermost first.
        error_handlers: Called with (error, context) after every run that raised.
        imports: Modules that declare tasks, loaded before a worker fetches.
        dump_payload: Makes text of a collecting task's payload, instead of canonical JSON. Equal texts are one payload.
        load_payload: Makes a payload of that text again.
        format_error: Makes text of the exception that a run ended with, instead of its traceback.
        dump_error: Makes of that text what is stored.
        load_error: Makes of what is stored what is shown.
        on_start: Called when a worker process starts, before it fetches.
        last_words: Called with the exception when a worker process ends by one.
        scheduler: Chooses among the shards of a queue.
        splitter: Chooses the shards of a queue that a worker process serves.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        env: str | None = None,
        infix: str = DEFAULT_INFIX,
        development: bool | None = None,
        broker: CoreBroker | None = None,
        serializer: Callable[[Registry], Serializer] = Serializer,
        logger: logging.Logger | None = None,
        middleware: Iterable[Middleware] = (),
        error_handlers: Iterable[ErrorHandler] = (),
        imports: Iterable[str] = (),
        dump_payload: Callable[[Any], str] | None = None,
        load_payload: Callable[[str], Any] | None = None,
        format_error: Callable[[BaseException], str] | None = None,
        dump_error: Callable[[str], str] | None = None,
        load_error: Callable[[str], str] | None = None,
        on_start: Callable[[], object] | None = None,
        last_words: Callable[[BaseException], object] | None = None,
        scheduler: Callable[[str, Mapping[int, float]], Sequence[int]] | None = None,
        splitter: Callable[[str, int], Iterable[int]] | None = None,
    ) -> None:
        self.names = names_of(name, infix, env)
        functions: dict[str, object] = {
            "dump_payload": dump_payload,
            "load_payload": load_payload,
            "format_error": format_error,
            "dump_error": dump_error,
            "load_error": load_error,
            "on_start": on_start,
            "last_words": last_words,
            "scheduler": scheduler,
            "splitter": splitter,
        }
        wrong = {what: value for what, value in functions.items() if value is not None and not callable(value)}
        raise_problems([f"{what} must be a function, not {value!r}." for what, value in wrong.items()])
        if (dump_payload is None) is not (load_payload is None):
            raise ConfigError("Give dump_payload and load_payload together: what one writes only the other can read.")
        if url is not None and broker is not None:
            raise ConfigError("Give a url or a broker, not both.")
        if isinstance(imports, str):
            raise ConfigError(f"imports must be a list of modules, such as [{imports!r}], not a text.")
        if url is not None and not isinstance(url, str):
            raise ConfigError(f"url must be text such as sqlite:///laneway.db, not {type(url).__name__}.")
        if url:
            check_url(url)
        if isinstance(broker, str):
            raise ConfigError("broker must be a broker, not a text; for a URL there is url.")
        self.name = name
        self.env = self.names.env
        self.infix = infix
        self._unheard: set[str] = set()
        self.registry = Registry()
        self.serializer = serializer(self.registry)
        self.logger = logger or logging.getLogger("laneway")
        self.middleware: Sequence[Middleware] = tuple(middleware)
        for each in self.middleware:
            if not isinstance(each, Middleware):
                kind = each.__name__ + "()" if isinstance(each, type) else "an instance of a Middleware"
                raise ConfigError(f"middleware must be instances of Middleware; give {kind}, not {each!r}.")
        EnqueuePipeline.__init__(self, url, broker, self.middleware)
        self.development = is_development(development)
        self.error_handlers: Sequence[ErrorHandler] = tuple(error_handlers)
        self.imports: Sequence[str] = tuple(imports)
        self.dump_payload = dump_payload
        self.load_payload = load_payload
        self.format_error = format_error
        self.dump_error: Callable[[str], str] = dump_error or _as_it_is
        self.load_error: Callable[[str], str] = load_error or _as_it_is
        self.on_start = on_start
        self.last_words = last_words
        self.scheduler = scheduler
        self.splitter = splitter
        #: Where other processes can load the app from, if somebody has said so; see `origin.py`.
        self.origin: Origin | None = None
        self._writes_ids = takes_id(self.serializer)

    # -- its tasks -------------------------------------------------------------------------------------

    def load(self) -> None:
        """Import the modules named in `imports`."""
        for module in self.imports:
            importlib.import_module(module)

    def queues(self) -> list[str]:
        """The queues of the app's tasks, in the order of their declaration."""
        return list(dict.fromkeys(task.options.queue or DEFAULT_QUEUE for task in self.registry))

    def open(self) -> None:
        """Connect to the broker and make the queues of the app's tasks, which the first `enqueue` would have to do.

        For a program that should be quick from its first request on, such as a web server: call it when the server
        starts. It may be called at any time, from any thread, and again: after `close`, and in a process that was
        forked, which has no connections of its parent's. Raises BrokerError if the broker is away or refuses, and
        ConfigError if its URL leads nowhere. On AWS the first `enqueue` reports refused credentials and missing queues,
        and an app without tasks does not connect.
        """
        queues = self.queues()
        for queue in queues:
            self.broker.declare(queue, self.shards_of(queue))
            self._made.add(queue)
        if not queues:
            self.broker.leases()  # an app that only publishes has no queue to make; this connects

    def __repr__(self) -> str:
        return f"<Laneway {self.name or ''} on {self.url}>"


def _as_it_is(text: str) -> str:
    return text
