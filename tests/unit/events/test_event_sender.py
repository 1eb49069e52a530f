"""EventSender: sends values straight to the queue of one listener."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest

from laneway import EnqueueError, Laneway
from laneway.jobs.data import EventCopy, Hints
from tests.support.publish_app import GENERIC, TOPIC, Recording, Relaying, app_on, copies, heard

pytestmark = pytest.mark.unit


@pytest.fixture
def broker() -> Recording:
    return Recording()


@pytest.fixture
def app(broker: Recording) -> Iterator[Laneway]:
    with closing(heard(broker)) as app:
        yield app


def test_a_sender_stores_plain_jobs_in_one_queue(app, broker):
    sender = app.sender("placed", "mail")
    handle = sender.send({"b": 1, "a": 2}, attributes={"country": "DE"})
    more = sender.send_many([1, "two"])
    assert sender.queue == handle.queue == f"mail-{TOPIC}"
    assert all(each.id.endswith(f"@mail-{TOPIC}") for each in (handle, *more)), "so it is known for a value"
    assert len({handle.id, *(each.id for each in more)}) == 3
    assert repr(sender) == f"<EventSender to mail-{TOPIC}>"
    assert [(job.queue, job.key, job.payloads[0].body) for job in copies(app)] == [
        (f"mail-{TOPIC}", each.id, body)
        for each, body in zip([handle, *more], ['{"a":2,"b":1}', "1", '"two"'], strict=True)
    ]
    first = broker.handed[0][0]
    assert (first.event, first.headers) == (EventCopy(attributes={"country": "DE"}), {"country": "DE"})
    assert handle.status() == "queued"


def test_a_sender_of_a_generic_event(app):
    assert app.sender("placed", "mail", generic=True).queue == f"mail-{GENERIC}"


def test_a_sender_with_options(app, broker):
    app.sender("placed", "mail").using(delay=timedelta(minutes=1), group="acme").using(cancellable=True).send(1)
    app.sender("placed", "mail").using(perform_at=5.0).send(1)
    first, second = broker.handed[0][0], broker.handed[1][0]
    assert (first.delay_s, first.hints) == (60.0, Hints("acme", True))
    assert (second.delay_s, second.perform_at) == (0.0, 5.0)


def test_a_sender_may_send_to_a_listener_of_its_own_app(app):
    queue = app.listener("placed", source="shop", name="on_placed")(lambda value: None).queue
    assert app.sender("placed", "shop").send(1).queue == queue


def test_a_sender_hands_attributes_to_a_broker_that_has_them_beside_messages():
    broker = Relaying()
    app_on(broker).sender("placed", "mail").send(1, attributes={"cents": 5})
    [[job]] = broker.handed
    assert (job.queue, job.to_topic, job.event.attributes, job.headers) == (
        f"mail-{TOPIC}",
        False,
        {"cents": 5},
        {"cents": "5"},
    )


@pytest.mark.parametrize("destination", ["", "a b", None, 5])
def test_a_destination_that_cannot_be(app, destination):
    with pytest.raises(EnqueueError, match="Event placed: destination must be 1 to 80 letters"):
        app.sender("placed", destination)


def test_a_queue_that_would_be_too_long(app):
    with pytest.raises(EnqueueError, match=r"Event placed: the queue x+-eventboss-shop-placed-test has \d+ characters"):
        app.sender("placed", "x" * 60)
