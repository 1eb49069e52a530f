"""Spans and metrics for OpenTelemetry, made from the app's telemetry alone. Needs the extra `otel`.

    from laneway import otel

    otel.instrument(app)

Enqueueing makes a producer span. Publishing makes one too, for all copies of an event. The jobs' headers carry the
trace. A run is a consumer span in that trace. It is current while the handler runs, so that the handler's spans
become its children. In an isolated process the current span is the worker's. Collecting jobs carry no headers, so
their runs begin traces of their own. The SDK that the program sets up decides what is exported, and where to.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from . import __version__
from .telemetry import (
    Enqueueing,
    EventsPublished,
    JobsEnqueued,
    RunAbandoned,
    RunEnded,
    RunEntered,
    RunLeft,
    RunSent,
    RunStarted,
)
from .worker.observe.counters import BUCKETS

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, set_span_in_context
except ImportError as error:
    raise ImportError(
        "laneway.otel needs the package opentelemetry-api; install it with: pip install 'laneway[otel]'."
    ) from error

if TYPE_CHECKING:
    from contextvars import Token

    from .app import Laneway

#: Of each app that is instrumented.
_instruments: weakref.WeakKeyDictionary[Laneway, _Instrument] = weakref.WeakKeyDictionary()


def instrument(
    app: Laneway,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    *,
    links: bool = False,
) -> None:
    """Trace an app's jobs and measure its runs, with the global providers unless others are given.

    With `links` a run begins a trace of its own that is linked to where its job was enqueued, instead of going on with
    that trace. Doing it again changes the providers.
    """
    uninstrument(app)
    _instruments[app] = _Instrument(app, tracer_provider, meter_provider, links)


def uninstrument(app: Laneway) -> None:
    """Undo `instrument`; runs under way are still traced to their end."""
    if found := _instruments.pop(app, None):
        found.close()


class _OpenSpan:
    """The span of a run under way, and how to make the one before current again."""

    __slots__ = ("failed", "span", "token")

    def __init__(self, span: Span, token: Token[Context] | None) -> None:
        self.span = span
        self.token = token
        self.failed = False


class _Instrument:
    def __init__(self, app: Laneway, tracers: Any, meters: Any, links: bool) -> None:
        self._telemetry = app.telemetry
        self._links = links
        self._tracer = trace.get_tracer("laneway", __version__, tracers)
        meter = metrics.get_meter("laneway", __version__, meters)
        self._jobs = meter.create_counter("laneway.jobs", "{job}", "Jobs whose run has ended, by verdict.")
        self._enqueued = meter.create_counter("laneway.jobs.enqueued", "{job}", "Jobs that were stored.")
        self._published = meter.create_counter("laneway.events.published", "{event}", "Events that were published.")
        self._duration = meter.create_histogram(
            "laneway.run.duration", "s", "How long runs took.", explicit_bucket_boundaries_advisory=BUCKETS
        )
        self._wait = meter.create_histogram(
            "laneway.run.wait", "s", "How long jobs were due already.", explicit_bucket_boundaries_advisory=BUCKETS
        )
        self._open: dict[int, _OpenSpan] = {}
        #: In an isolated process: how to make current again what was so before the run.
        self._entered: Token[Context] | None = None
        self._lock = threading.Lock()
        self._begins: dict[type, Any] = {
            Enqueueing: self._enqueueing,
            JobsEnqueued: self._jobs_enqueued,
            EventsPublished: self._events_published,
            RunStarted: self._run_started,
            RunSent: self._run_sent,
            RunEntered: self._run_entered,
        }
        self._ends: dict[type, Any] = {
            RunEnded: self._run_ended,
            RunAbandoned: self._run_abandoned,
            RunLeft: self._run_left,
        }
        self._closing = False
        for kind, callback in (self._begins | self._ends).items():
            self._telemetry.subscribe(kind, callback)

    def close(self) -> None:
        for kind, callback in self._begins.items():
            self._telemetry.unsubscribe(kind, callback)
        with self._lock:
            self._closing = True
        self._leave_when_done()

    def _leave_when_done(self) -> None:
        with self._lock:
            if not self._closing or self._open or self._entered is not None:
                return
            self._closing = False
        for kind, callback in self._ends.items():
            self._telemetry.unsubscribe(kind, callback)

    # -- enqueueing ------------------------------------------------------------------------------------

    def _enqueueing(self, event: Enqueueing) -> None:
        kind, verb = ("send", "publish") if event.published else ("create", "enqueue")
        attributes: dict[str, str | int] = {
            "messaging.system": "laneway",
            "messaging.destination.name": event.queue,
            "messaging.operation.type": kind,
            "messaging.operation.name": verb,
        }
        if event.count > 1:
            attributes["messaging.batch.message_count"] = event.count
        span = self._tracer.start_span(f"{verb} {event.queue}", kind=SpanKind.PRODUCER, attributes=attributes)
        propagate.inject(event.headers, set_span_in_context(span))
        span.end()

    def _jobs_enqueued(self, event: JobsEnqueued) -> None:
        self._enqueued.add(event.count, {"queue": event.queue})

    def _events_published(self, event: EventsPublished) -> None:
        self._published.add(event.count, {"topic": event.topic})

    # -- runs ------------------------------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> None:
        # Not the current context: whatever a thread was left with is not where this job comes from.
        context = propagate.extract(event.headers or {}, Context())
        origin = trace.get_current_span(context).get_span_context()
        linked = [Link(origin)] if self._links and origin.is_valid else []
        if self._links:
            context = set_span_in_context(trace.INVALID_SPAN, context)
        span = self._tracer.start_span(
            f"process {event.task}", context, SpanKind.CONSUMER, _attributes(event, event.keys), linked
        )
        with self._lock:
            self._open[event.run] = _OpenSpan(span, attach(set_span_in_context(span, context)))
        self._wait.record(event.waited_s, {"queue": event.queue, "task": event.task})

    def _run_ended(self, event: RunEnded) -> None:
        self._jobs.add(event.keys, {"queue": event.queue, "task": event.task, "verdict": event.verdict})
        opened = self._found(event)
        if opened is None:
            return
        if event.exception is not None:
            _record(opened.span, event.exception, event.error, {"laneway.key": event.key})
        if event.verdict in ("retry", "bury"):
            opened.failed = True
            opened.span.set_status(StatusCode.ERROR, event.error)
            opened.span.set_attribute("laneway.verdict", event.verdict)
        elif not opened.failed:  # of a batch, the keys that failed are what one looks for
            opened.span.set_attribute("laneway.verdict", event.verdict)
        if not event.more:
            self._duration.record(event.duration_s, {"queue": event.queue, "task": event.task})
            self._finish(event.run, opened)

    def _run_abandoned(self, event: RunAbandoned) -> None:
        if opened := self._open.get(event.run):
            _record(opened.span, event.exception, event.error, {})
            opened.span.set_status(StatusCode.ERROR, event.error)
            self._finish(event.run, opened)

    # -- runs in an isolated process, whose span is the worker's ---------------------------------------

    def _run_sent(self, event: RunSent) -> None:
        propagate.inject(event.headers)

    def _run_entered(self, event: RunEntered) -> None:
        self._entered = attach(propagate.extract(event.headers, Context()))

    def _run_left(self, event: RunLeft) -> None:
        if self._entered is not None:
            detach(self._entered)
            self._entered = None
        if self._closing:
            self._leave_when_done()

    def _found(self, event: RunEnded) -> _OpenSpan | None:
        """The span that ends; one that never started is made for the occasion."""
        if event.run:
            return self._open.get(event.run)
        began = time.time_ns() - int(event.duration_s * 1e9)
        attributes = _attributes(event, event.keys)
        name = f"process {event.task}"
        return _OpenSpan(
            self._tracer.start_span(name, Context(), SpanKind.CONSUMER, attributes, start_time=began), None
        )

    def _finish(self, run: int, opened: _OpenSpan) -> None:
        opened.span.end()
        if opened.token is not None:
            detach(opened.token)
        with self._lock:
            self._open.pop(run, None)
        if self._closing:
            self._leave_when_done()


def _record(span: Span, error: BaseException, text: str | None, attributes: dict[str, str]) -> None:
    """Note an exception. The SDK asks it for its text; one that has none is noted by what the event says of it."""
    try:
        span.record_exception(error, attributes)
    except BaseException:
        said = {"exception.type": type(error).__name__, "exception.message": text or ""}
        span.add_event("exception", {**said, **attributes})


def _attributes(event: RunStarted | RunEnded, keys: int) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "messaging.system": "laneway",
        "messaging.destination.name": event.queue,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.message.id": event.id or event.key,
        "laneway.queue": event.queue,
        "laneway.task": event.task,
        "laneway.key": event.key,
        "laneway.attempt": event.attempt,
    }
    if keys > 1:
        found["messaging.batch.message_count"] = keys
    return found
