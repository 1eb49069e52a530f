"""Tests of the event commands on AWS: `subscribe`, `check`, and `deadletter` reload and purge.

A worker in development mode creates the resources.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from laneway import Laneway, Worker
from tests.support.aws.endpoints import Place
from tests.support.aws.fault_proxy import LOST, FaultProxy
from tests.support.in_process_shop import Quick, quick

__all__ = ["quick"]

APP = """
from laneway import Laneway

app = Laneway({url!r}, name="shop", development=True)

@app.listener("placed", source="web", max_retry_count=0)
def bill(value: int) -> None:
    raise ValueError("no")

@app.listener("paid", source="web")
def thank(value: int) -> None: ...
"""

DEAD = "p-shop-eventboss-web-placed-deadletter"
QUEUE = "shop-eventboss-web-placed"


def wait_for_dead(place: Place, count: int) -> None:
    until = time.monotonic() + 60
    while place.counts(DEAD)[0] < count:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture
def shop(quick: Quick, fake: Place) -> Quick:
    quick.write("shop.py", APP.format(url=fake.url(prefix="p-")))
    return quick


@pytest.fixture
def web(fake: Place) -> Any:
    app = Laneway(fake.url(prefix="p-"), name="web")
    yield app
    app.close()


def test_from_nothing_to_dead_letters_and_back(shop: Quick, fake: Place, web: Laneway) -> None:
    done = shop.run("subscribe", "shop.py", "--json")
    assert (done.returncode, {step["level"] for step in msgspec.json.decode(done.stdout)["steps"]}) == (3, {"problem"})
    space: dict[str, Any] = {}
    exec((shop.folder / "shop.py").read_text(), space)
    worker = Worker(space["app"])
    worker.start()
    web.publish_many("placed", range(7), attributes={"country": "DE"})
    wait_for_dead(fake, 7)
    worker.stop()
    space["app"].close()
    assert {step["level"] for step in shop.json("subscribe", "shop.py")["steps"]} == {"ok"}
    document = shop.json("deadletter", "reload", "placed", "--source", "web", "--app", "shop.py", "--max", "4")
    done_well = {"interrupted": False, "unseen": 0, "ownerless": 0}
    assert document == {"queue": QUEUE, "found": 7, "reloaded": 4, **done_well}
    [message, *_] = fake.receive_all(f"p-{QUEUE}")
    assert message["MessageAttributes"]["country"]["StringValue"] == "DE"
    url = ("--destination", "shop", "--url", fake.url(prefix="p-"))
    assert shop.json("deadletter", "purge", "placed", "--source", "web", *url, "--yes")["purged"] == 3


def test_a_reload_that_has_not_seen_all_says_so_and_ends_with_1(quick: Quick, fake: Place) -> None:
    with FaultProxy(fake.endpoint) as proxy:
        quick.write("shop.py", APP.format(url=proxy.url(prefix="p-", wait=0)))
        quick.ok("aws", "create", "shop.py", "--no-table")
        for number in range(20):
            fake.sqs_client.send_message(QueueUrl=fake.queue_url(DEAD), MessageBody=f"{number}")
        lost = proxy.rule(LOST, "ReceiveMessage", nth=1)
        done = quick.run("deadletter", "reload", "placed", "--source", "web", "--app", "shop.py")
        assert (lost.happened, done.returncode) == (1, 1)
    assert done.stdout == f"Reloaded 10 dead letters of {QUEUE}.\n"
    assert done.stderr.startswith("10 of the 20 that were counted when it began were not seen. They may be hidden, for")
    assert done.stderr.endswith("; do it again then.\n")


def test_check_names_a_subscription_without_a_listener(shop: Quick, fake: Place, web: Laneway) -> None:
    shop.ok("aws", "create", "shop.py", "--no-table")
    assert shop.json("check", "shop.py")["well"]
    web.publish_many("placed", [1, 2])
    text = APP.format(url=fake.url(prefix="p-"))
    shop.write("shop.py", text[: text.index("@app.listener")] + text[text.rindex("@app.listener") :])
    done = shop.run("check", "shop.py", "--json")
    assert done.returncode == 0, "who serves it is not known without a table: it may be another environment's"
    [note] = [each["text"] for each in msgspec.json.decode(done.stdout)["findings"] if "subscribed" in each["text"]]
    assert note.startswith(f"The queue {QUEUE} is subscribed to eventboss-web-placed, and shop.py:app has no ")
    assert "2 jobs wait there. Its listener was removed, or it belongs to another environment" in note
    shop.ok("unsubscribe", "shop.py", "web-placed", "--yes")
    assert [each["queue"] for each in shop.json("subscriptions", "shop.py")["subscriptions"]] == [
        "shop-eventboss-web-paid"
    ]
    assert shop.json("check", "shop.py")["well"]
