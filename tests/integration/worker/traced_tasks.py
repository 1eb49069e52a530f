"""App whose isolated tasks are traced. Every process appends its spans and counts to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from opentelemetry import baggage
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from laneway import Batch, Context, Key, Laneway, otel

#: Where the spans go; an isolated process inherits it.
SPANS = "LANEWAY_TEST_SPANS"


class ToFile(SpanExporter):
    """A line a span."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with Path(os.environ[SPANS]).open("a") as file:
            file.writelines(json.dumps(_shown(span)) + "\n" for span in spans)
        return SpanExportResult.SUCCESS


def _shown(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    parent = span.parent.span_id if span.parent else None
    return {"name": span.name, "trace": context.trace_id, "id": context.span_id, "parent": parent, "pid": os.getpid()}


tracers = TracerProvider(shutdown_on_exit=False)
tracers.add_span_processor(SimpleSpanProcessor(ToFile()))
tracer = tracers.get_tracer("test")


def trace() -> None:
    otel.instrument(app, tracers)


app = Laneway("sqlite:///unused.db", on_start=trace)  # as some do; it must not be twice what it is once
trace()


@app.task
def following() -> None: ...


@app.task(isolation="process", context=True, max_retry_count=0)
def apart(context: Context, ending: str = "well") -> None:
    with tracer.start_as_current_span(f"inside {baggage.get_baggage('customer')}"):
        context.enqueue(following)
        following.enqueue()
    if ending == "badly":
        raise ValueError("no")


@app.task(isolation="process", context=True)
async def apart_async(context: Context) -> None:
    with tracer.start_as_current_span(f"inside {baggage.get_baggage('customer')}"):
        context.enqueue(following)
        following.enqueue()


@app.task(time_limit=60)
def limited() -> None:
    with tracer.start_as_current_span("inside"):
        pass


@app.task(isolation="process")
def keyed(key: Annotated[str, Key]) -> None:
    with tracer.start_as_current_span("inside"):
        pass


@app.collect(isolation="process", batch_size=3, shards=1)
def gather(batch: Batch[int]) -> None:
    with tracer.start_as_current_span("inside"):
        pass
