"""Fixtures for unit tests: an app in memory, its stored jobs, and a check that a refusal stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from laneway import EnqueueError, Laneway
from laneway.brokers.sqlite import MemoryBroker
from laneway.jobs.data import JobView

Refused = Callable[..., AbstractContextManager[pytest.ExceptionInfo[EnqueueError]]]


@pytest.fixture
def app() -> Iterator[Laneway]:
    app = Laneway(broker=MemoryBroker())
    yield app
    app.close()


@pytest.fixture
def stored(app: Laneway) -> Callable[[], list[JobView]]:
    """The jobs in all queues, in the order in which they were enqueued."""

    def jobs() -> list[JobView]:
        queues = sorted(app.broker.inspect.queues())
        return sorted(
            (j for q in queues for j in app.broker.inspect.listing(q, "queued").jobs), key=lambda job: job.key
        )

    return jobs


@pytest.fixture
def bodies(stored: Callable[[], list[JobView]]) -> Callable[[], list[str]]:
    return lambda: [job.payloads[0].body for job in stored()]


@pytest.fixture
def refused(app: Laneway) -> Refused:
    """`with refused("part of the sentence"): …`: and nothing is stored."""

    @contextmanager
    def refused(*sentence: str) -> Iterator[pytest.ExceptionInfo[EnqueueError]]:
        with pytest.raises(EnqueueError) as caught:
            yield caught
        for part in sentence:
            assert part in str(caught.value)
        assert str(caught.value).endswith(".")
        assert [queue for queue in app.broker.inspect.stats() if queue.length] == []

    return refused
