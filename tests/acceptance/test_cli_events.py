"""Events on the command line: subscriptions, workers that serve some of the listeners, and check."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing

import msgspec
import pytest

from laneway import Laneway
from laneway.broker import Broker
from laneway.events.event import Subscription
from laneway.jobs.data import WorkerView
from laneway.urls import open_broker
from tests.support.in_process_shop import Quick, quick
from tests.support.shop import Shop, answer

pytestmark = pytest.mark.acceptance

APP = """
from pathlib import Path
from laneway import Laneway

app = Laneway(name="shop")

@app.task
def count() -> None: ...

@app.listener("placed", source="web")
def bill(value: dict) -> None:
    Path(f"bill-{value['id']}").touch()

@app.listener("placed", source="web", destination="store", filter={"country": ["DE"]})
def ship(value: dict) -> None:
    Path(f"ship-{value['id']}").touch()
"""

TOPIC = "eventboss-web-placed"
BILL, SHIP = f"shop-{TOPIC}", f"store-{TOPIC}"


__all__ = ["quick"]


@pytest.fixture
def web(quick: Quick) -> Quick:
    quick.write("shop.py", APP)
    return quick


@pytest.fixture
def real(shop: Shop) -> Shop:
    """The same, with a process for each command."""
    shop.write("shop.py", APP)
    return shop


def publisher(shop: Shop) -> Laneway:
    return Laneway(f"sqlite:///{shop.database}", name="web")


def publish(shop: Shop, *ids: str) -> None:
    app = publisher(shop)
    app.publish_many("placed", [{"id": each} for each in ids], attributes={"country": "DE"})
    app.close()


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def subscribed(shop: Shop) -> list[str]:
    with closing(open_broker(f"sqlite:///{shop.database}")) as broker:
        return [each.queue for each in broker.events.subscriptions()]


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


# -- subscribing ---------------------------------------------------------------------------------------


def test_subscribe_writes_what_is_missing_and_says_so(web: Shop) -> None:
    lines = web.ok("subscribe", "shop.py", "--dry-run").splitlines()
    assert lines == [
        f"missing  The queue {BILL} is not subscribed to {TOPIC}.",
        f"missing  The queue {SHIP} is not subscribed to {TOPIC}.",
    ]
    assert web.ok("subscribe", "shop.py").splitlines() == [
        f"made     The queue {BILL} is subscribed to {TOPIC}.",
        f"made     The queue {SHIP} is subscribed to {TOPIC}.",
    ]
    steps = web.json("subscribe", "shop.py")["steps"]
    assert [(step["level"], step["listener"], step["topic"], step["queue"]) for step in steps] == [
        ("ok", "bill", TOPIC, BILL),
        ("ok", "ship", TOPIC, SHIP),
    ]


def test_subscriptions_are_listed_with_their_listeners(web: Shop) -> None:
    assert web.wrong("subscriptions").startswith("There is no database")
    web.ok("subscribe", "shop.py")
    app = publisher(web)
    app.broker.events.subscribe(Subscription(TOPIC, f"other-{TOPIC}"))
    app.close()
    document = web.json("subscriptions", "shop.py")
    assert document["subscriptions"] == [
        {"topic": TOPIC, "queue": f"other-{TOPIC}", "filter": None, "listener": None},
        {"topic": TOPIC, "queue": BILL, "filter": None, "listener": "bill"},
        {"topic": TOPIC, "queue": SHIP, "filter": {"country": ["DE"]}, "listener": "ship"},
    ]
    table = web.ok("subscriptions", "shop.py")
    assert [line.split() for line in table.splitlines()[2:]] == [
        [TOPIC, f"other-{TOPIC}", "-", "-"],
        [TOPIC, BILL, "bill", "-"],
        [TOPIC, SHIP, "ship", '{"country":["DE"]}'],
    ]
    web.ok("unsubscribe", "shop.py", "placed", "--source", "web")
    done = web.run("subscriptions", "shop.py")
    assert f"The queue {BILL} of bill is not subscribed to {TOPIC} yet" in done.stderr


def test_unsubscribe_ends_one_and_leaves_what_is_in_the_queue(web: Shop) -> None:
    web.ok("subscribe", "shop.py")
    publish(web, "1", "2")
    web.write("shop.py", APP.replace('@app.listener("placed", source="web")\n', ""))
    done = web.run("unsubscribe", "shop.py", "placed", "--source", "web", "--yes")
    assert (done.returncode, done.stdout) == (0, f"The queue {BILL} gets no more of {TOPIC}.\n")
    assert done.stderr == (
        f"2 jobs of it are still there; laneway jobs --queue {BILL} lists them, and a worker with the old code, "
        f"-Q {BILL} and --no-subscribe runs them.\n"
    )
    publish(web, "3")
    assert {each["queue"]: each["length"] for each in web.json("stats")["queues"]} == {BILL: 2, SHIP: 3}
    sentence = web.wrong("unsubscribe", "shop.py", "placed", "--source", "web")
    assert sentence == f"The queue {BILL} is not subscribed to {TOPIC}; nor has this app any other."


def test_unsubscribe_warns_of_a_listener_that_is_still_there(web: Shop) -> None:
    web.ok("subscribe", "shop.py")
    done = web.run("unsubscribe", "shop.py", "placed", "--source", "web", "--destination", "store")
    assert done.returncode == 0
    assert "shop.py:app still listens to it (ship)" in done.stderr
    assert subscribed(web) == [BILL]


def test_unsubscribe_takes_the_name_of_the_queue(web: Shop) -> None:
    web.ok("subscribe", "shop.py")
    with closing(open_broker(f"sqlite:///{web.database}")) as broker:
        broker.events.subscribe(Subscription("eventboss-day_began", SHIP))
    document = web.json("unsubscribe", "shop.py", "--queue", SHIP)
    assert document == {"topics": ["eventboss-day_began", TOPIC], "queue": SHIP, "waiting": 0, "listens": True}
    assert subscribed(web) == [BILL]
    assert web.wrong("unsubscribe", "shop.py", "--queue", "no-such").startswith("The queue no-such is not subscribed")
    for args in ([], ["placed", "--queue", BILL], ["--queue", BILL, "--source", "web"]):
        assert web.wrong("unsubscribe", "shop.py", *args).startswith("Give EVENT, ")


def test_unsubscribe_asks_before_it_ends_what_the_app_does_not_have(real: Shop) -> None:
    """It may be that of another environment."""
    real.ok("subscribe", "shop.py", LANEWAY_ENV="prod")
    with closing(Laneway(f"sqlite:///{real.database}", name="web", env="prod")) as app:
        app.publish_many("placed", [{"id": "1"}])
    queue = f"{BILL}-prod"
    end_it = ("unsubscribe", "shop.py", "--queue", queue)
    assert real.wrong(*end_it) == (
        f"The queue {queue} is still subscribed: shop.py:app, with no env, has no listener for it, though another "
        "environment or version of it may. There is no terminal to ask at; say --yes if its subscription is to end."
    )
    code, said = answer(real, "n", *end_it)
    assert code == 1
    said = " ".join(said.split())
    assert f"1 job waits there and will stay; what is published to {TOPIC}-prod from now on will not get there." in said
    assert "Nothing was done." in said
    assert subscribed(real) == [queue, f"{SHIP}-prod"]
    assert answer(real, "y", *end_it)[0] == 0
    assert subscribed(real) == [f"{SHIP}-prod"]


def serves(broker: Broker, *queues: str) -> None:
    now = time.time()
    names = list(queues)
    broker.join(
        WorkerView(id="w", host="h", pid=1, queues=names, concurrency=1, lease_s=600.0, started_at=now, seen_at=now)
    )


def test_unsubscribe_asks_before_it_ends_what_a_worker_serves(web: Shop) -> None:
    web.ok("subscribe", "shop.py")
    with closing(open_broker(f"sqlite:///{web.database}")) as broker:
        serves(broker, BILL)
    sentence = web.wrong("unsubscribe", "shop.py", "placed", "--source", "web")
    assert sentence.startswith(f"The queue {BILL} is still subscribed: a living worker serves it. There is no terminal")
    assert subscribed(web) == [BILL, SHIP]
    web.ok("unsubscribe", "shop.py", "placed", "--source", "web", "--yes")
    web.ok("unsubscribe", "shop.py", "--queue", SHIP)
    assert subscribed(web) == []


def test_what_an_app_does_not_have_is_said(web: Shop) -> None:
    web.write("quiet.py", "from laneway import Laneway\napp = Laneway()\n@app.task\ndef f() -> None: ...\n")
    assert web.wrong("subscribe", "quiet").startswith("quiet listens to nothing; declare a listener")
    assert web.wrong("unsubscribe", "quiet", "placed").startswith("Whose listener was it?")


# -- workers -------------------------------------------------------------------------------------------


def test_two_workers_each_serve_their_listener(real: Shop) -> None:
    """Whoever publishes when both have said that they run, reaches both."""
    first = real.serving("worker", "shop", "--include", "bill")
    assert subscribed(real) == [BILL]
    second = real.serving("worker", "shop", "--exclude", "bill")
    assert subscribed(real) == [BILL, SHIP]
    ids = [str(number) for number in range(20)]
    publish(real, *ids)
    names = [f"{kind}-{each}" for kind in ("bill", "ship") for each in ids]
    wait_for(lambda: all((real.folder / name).exists() for name in names))
    with closing(open_broker(f"sqlite:///{real.database}")) as broker:
        served = [sorted(worker.queues) for worker in broker.inspect.workers()]
    assert sorted(served) == [["default", BILL], ["default", SHIP]]
    end(first)
    end(second)
    assert subscribed(real) == [BILL, SHIP], "a worker that ends removes nothing"


def test_what_was_unsubscribed_is_drained_and_stays_unsubscribed(real: Shop) -> None:
    real.ok("subscribe", "shop.py")
    publish(real, "1", "2")
    with closing(open_broker(f"sqlite:///{real.database}")) as broker:
        assert broker.events.unsubscribe(TOPIC, BILL)
    real.ok("worker", "shop.py", "-Q", BILL, "--no-subscribe", "--until-empty")
    assert all((real.folder / f"bill-{each}").exists() for each in ("1", "2"))
    assert subscribed(real) == [SHIP]


@pytest.mark.parametrize("command", [("worker",), ("dev", "--no-reload")])
def test_names_that_are_wrong_are_refused_before_anything_starts(web: Shop, command: tuple[str, ...]) -> None:
    sentence = web.wrong(*command, "shop.py", "--include", "bil")
    assert sentence == "There is no listener 'bil' to include; there is bill, ship."
    assert not web.database.exists()


def test_an_app_that_only_listens_must_have_something_left(web: Shop) -> None:
    web.write("shop.py", APP.replace("@app.task\n", ""))
    sentence = web.wrong("worker", "shop.py", "--exclude", "bill", "--exclude", "ship")
    assert sentence.startswith("Nothing is left to serve: ")


def test_dev_turns_development_on_in_every_process(real: Shop) -> None:
    program = APP + (
        "\n@app.task(isolation='process')\ndef tell() -> None:\n"
        "    Path('apart').write_text(repr(app.development))\n"
        "app.on_start = lambda: Path('here').write_text(repr(app.development))\n"
    )
    real.write("shop.py", program)
    real.python("import shop; shop.tell.enqueue()")
    real.ok("dev", "shop", "--until-empty")
    assert [(real.folder / name).read_text() for name in ("here", "apart")] == ["True", "True"]


# -- check ---------------------------------------------------------------------------------------------


def notes(shop: Shop, code: int = 0) -> list[tuple[str, str]]:
    done = shop.run("check", "shop.py", "--json")
    assert done.returncode == code, done.stdout
    findings = msgspec.json.decode(done.stdout)["findings"]
    return [(each["level"], each["text"]) for each in findings if "subscribed" in each["text"]]


def test_check_names_listeners_without_a_subscription(web: Shop) -> None:
    web.ok("subscribe", "shop.py")
    assert notes(web) == []
    web.ok("unsubscribe", "shop.py", "placed", "--source", "web")
    [(level, text)] = notes(web)
    assert level == "note"
    assert text == (
        f"The listener bill is not subscribed to {TOPIC} yet; a worker that serves it does so when it starts, and so "
        "does laneway subscribe shop.py:app."
    )
    web.write("shop.py", APP.replace('["DE"]', '["FR"]'))
    assert [level for level, text in notes(web) if "with another filter than it declares" in text] == ["note"]


def test_check_names_subscriptions_without_a_listener_and_what_waits_there(web: Shop) -> None:
    web.ok("subscribe", "shop.py")
    publish(web, "1", "2", "3")
    web.write("shop.py", APP.replace('@app.listener("placed", source="web")\n', ""))
    [(level, text)] = notes(web, code=3)
    assert level == "problem"
    assert text == (
        f"The queue {BILL} is subscribed to {TOPIC}, and shop.py:app has no listener for it; 3 jobs wait there, and no "
        "worker serves it. Its listener was removed, or it belongs to another environment (env=…, LANEWAY_ENV) or to "
        "another version of the app. Only if no app is to get these events any more, end that with laneway "
        f"unsubscribe shop.py:app --queue {BILL}."
    )
    web.ok("unsubscribe", "shop.py:app", "--queue", BILL, "--yes")
    assert notes(web) == []


def test_check_does_not_advise_to_cut_off_another_environment(web: Shop) -> None:
    web.ok("subscribe", "shop.py", LANEWAY_ENV="prod")
    with closing(Laneway(f"sqlite:///{web.database}", name="web", env="prod")) as app:
        app.publish_many("placed", [{"id": "1"}], attributes={"country": "DE"})
        serves(app.broker, f"{BILL}-prod", f"{SHIP}-prod")
    [(level, text)] = [each for each in notes(web) if "prod" in each[1]]
    assert (level, text) == (
        "note",
        f"The queue {BILL}-prod is subscribed to {TOPIC}-prod, and shop.py:app has no listener for it; 1 job waits "
        "there. A worker serves it, so it belongs to another environment (env=…, LANEWAY_ENV) or to another version "
        "of the app.",
    )


def test_check_names_what_nobody_hears_whoever_it_was_for(web: Shop) -> None:
    """A removed listener with a destination of its own is known by nothing but its subscription."""
    web.ok("subscribe", "shop.py")
    publish(web, *map(str, range(20)))
    web.write("shop.py", APP[: APP.rindex("@app.listener")])
    assert notes(web) == [
        (
            "note",
            f"The queue {SHIP} is subscribed to {TOPIC}, shop.py:app has no listener for it, and no worker serves it; "
            "20 jobs wait there. Start the worker that has the listener; or, if there is none any more, end that with "
            f"laneway unsubscribe shop.py:app --queue {SHIP}, and then drain it.",
        )
    ]
    texts = [each["text"] for each in web.json("check", "shop.py")["findings"]]
    assert not [text for text in texts if f"with -Q {SHIP}" in text], "it is said once what to do"
    with closing(open_broker(f"sqlite:///{web.database}")) as broker:
        serves(broker, SHIP)
    assert notes(web) == []
