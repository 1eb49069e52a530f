"""deadletter: reload and purge the dead letters of one listener, with an end."""

from __future__ import annotations

import os
import pty
import select
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from laneway import Laneway
from laneway.broker import Broker
from laneway.cli.act import MorgueBulkAction
from laneway.events.event import Subscription
from laneway.jobs.settlement import buried
from laneway.testing.conformance.fixtures import ScriptedWorker, job
from laneway.urls import open_broker
from tests.support.in_process_shop import Quick, quick
from tests.support.servers import RedisServer, wait_until
from tests.support.shop import CANARY, Shop, answer

pytestmark = pytest.mark.acceptance

APP = """
from laneway import Laneway

app = Laneway(name="shop")

@app.listener("placed", source="web", max_retry_count=0)
def bill(value: str) -> None:
    raise ValueError("not today")

@app.listener("day_began", max_retry_count=0)
def open_up(value: str) -> None:
    raise ValueError("not today")
"""

QUEUE = "shop-eventboss-web-placed"
WHICH = ("placed", "--source", "web")


__all__ = ["quick"]


@pytest.fixture
def web(quick: Quick) -> Quick:
    quick.write("shop.py", APP)
    return quick


def kill(shop: Shop, count: int, queue: str = QUEUE, **options: bool) -> None:
    """Have events be published, and buried."""
    app = Laneway(f"sqlite:///{shop.database}", name="web")
    topic = queue.removeprefix("shop-")
    app.broker.events.subscribe(Subscription(topic, queue))
    values = [f"{CANARY}-{number}" for number in range(count)]
    app.publish_many(topic.rpartition("-")[2], values, attributes={"country": "DE"}, **options)
    bury(ScriptedWorker(app.broker), queue)
    app.close()


def bury(hand: ScriptedWorker, queue: str = "q") -> None:
    """Bury all that is due."""
    while claims := hand.claim(queue=queue, limit=100):
        hand.settle(*(buried(claim, "no") for claim in claims), queue=queue)


def stats(shop: Shop, queue: str = QUEUE) -> tuple[int, int]:
    """How many are queued, and how many dead."""
    with closing(open_broker(f"sqlite:///{shop.database}")) as broker:
        [found] = [each for each in broker.inspect.stats() if each.queue == queue]
    return found.length, found.dead


def test_reload_puts_all_back_with_their_attributes(web: Shop) -> None:
    kill(web, 3)
    assert stats(web) == (0, 3)
    assert web.ok("deadletter", "reload", *WHICH, "--app", "shop.py") == f"Reloaded 3 dead letters of {QUEUE}.\n"
    assert stats(web) == (3, 0)
    app = Laneway(f"sqlite:///{web.database}")
    claim = ScriptedWorker(app.broker).claim(queue=QUEUE, limit=1)[0]
    assert (claim.retry_count, claim.headers) == (-1, {"country": "DE"})
    app.close()


def test_no_more_than_max_and_the_oldest_first(web: Shop) -> None:
    kill(web, 5)
    document = web.json("deadletter", "reload", *WHICH, "--app", "shop.py", "--max", "2")
    rest = {"interrupted": False, "unseen": 0, "ownerless": 0}
    assert document == {"queue": QUEUE, "found": 5, "reloaded": 2, **rest}
    assert stats(web) == (2, 3)
    document = web.json("deadletter", "purge", *WHICH, "--app", "shop.py", "--max", "1", "--yes")
    assert document == {"queue": QUEUE, "found": 3, "purged": 1, **rest}
    assert stats(web) == (2, 2)


def test_purge_asks_first(web: Shop) -> None:
    kill(web, 2)
    assert "say --yes" in web.wrong("deadletter", "purge", *WHICH, "--app", "shop.py")
    code, said = answer(web, "y", "deadletter", "purge", *WHICH, "--app", "shop.py")
    assert code == 0
    assert f"Delete 2 dead letters of {QUEUE} for good?" in said
    assert f"Purged 2 dead letters of {QUEUE}." in said
    assert stats(web) == (0, 0)
    assert web.ok("deadletter", "purge", *WHICH, "--app", "shop.py") == f"There are no dead letters of {QUEUE}.\n"


def test_generic_events_and_every_way_to_name_the_listener(web: Shop) -> None:
    generic = "shop-eventboss-day_began"
    kill(web, 2, generic, generic=True)
    assert web.ok("deadletter", "reload", "day_began", "--app", "shop.py") == f"Reloaded 2 dead letters of {generic}.\n"
    with closing(open_broker(f"sqlite:///{web.database}")) as broker:
        bury(ScriptedWorker(broker), generic)
    url = f"sqlite:///{web.database}"
    assert web.ok("deadletter", "reload", "day_began", "--destination", "shop", "--url", url).startswith("Reloaded 2 ")
    assert "give" in web.wrong("deadletter", "reload", "day_began", "--url", url).lower()


def test_a_listener_that_is_not_there_is_named_with_those_that_are(web: Shop) -> None:
    assert web.wrong("deadletter", "reload", *WHICH, "--app", "shop.py").startswith("There is no database")
    kill(web, 1)
    sentence = web.wrong("deadletter", "reload", "placed", "--app", "shop.py")
    assert sentence == (
        "There is no queue 'shop-eventboss-placed', where shop would listen to placed; the app listens to placed "
        "--source web, day_began."
    )


def test_those_that_are_there_are_named_as_they_are_given(web: Shop) -> None:
    """Two that differ in their destination alone."""
    web.write(
        "shop.py",
        APP + APP[APP.index("@app") : APP.rindex("@app")].replace("max", "name='till', destination='till', max"),
    )
    kill(web, 1)
    sentence = web.wrong("deadletter", "reload", "paid", "--app", "shop.py")
    assert sentence.endswith("listens to placed --source web, day_began, placed --source web --destination till.")


def test_the_name_of_the_queue_does_without_an_app(web: Shop) -> None:
    """An infix and an env are known to apps alone."""
    queue = "shop-bus-web-placed-prod"
    with closing(Laneway(f"sqlite:///{web.database}", name="web", infix="bus", env="prod")) as app:
        app.broker.events.subscribe(Subscription("bus-web-placed-prod", queue))
        app.publish_many("placed", [1, 2, 3])
        bury(ScriptedWorker(app.broker), queue)
    url = ("--url", f"sqlite:///{web.database}")
    assert "give one with --queue" in web.wrong("deadletter", "reload", *WHICH, "--destination", "shop", *url)
    assert web.json("deadletter", "reload", "--queue", queue, *url, "--max", "2")["reloaded"] == 2
    assert web.json("deadletter", "purge", "--queue", queue, *url, "--yes")["purged"] == 1
    assert stats(web, queue) == (2, 0)
    assert web.wrong("deadletter", "reload", "--queue", "no", *url) == f"There is no queue 'no'; there is {queue}."
    for args in ([], ["placed", "--queue", queue], ["--queue", queue, "--destination", "shop"]):
        assert web.wrong("deadletter", "reload", *args, *url).startswith("Give EVENT, ")


def test_a_broker_that_ends_it_early_is_told_with_what_was_done(web: Shop) -> None:
    """A file that cannot be written to."""
    kill(web, 2)
    with sqlite3.connect(web.database) as connection:
        connection.execute("BEGIN IMMEDIATE")
        done = web.run(
            "deadletter", "reload", *WHICH, "--app", "shop.py", "--url", f"sqlite:///{web.database}?timeout=0.1"
        )
        connection.rollback()
    connection.close()
    assert done.returncode == 1
    assert stats(web) == (0, 2)


# -- that it ends --------------------------------------------------------------------------------------


def dying(broker: Broker, count: int) -> ScriptedWorker:
    """A worker that buries what it is given; it has buried so many."""
    broker.declare("q", 3)
    broker.enqueue([job(f"j{number:04}") for number in range(count)])
    hand = ScriptedWorker(broker)
    bury(hand)
    return hand


def watched(broker: Broker, then: Callable[[], object]) -> Broker:
    """The broker, whose revivals somebody watches from now on, after each."""
    revive = broker.operate.revive

    def watched_revive(queue: str, keys: Sequence[str]) -> int:
        count = revive(queue, keys)
        then()
        return count

    broker.operate.revive = watched_revive  # type: ignore[method-assign]
    return broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = open_broker(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield broker
    broker.close()


def test_what_dies_again_meanwhile_is_left_on_redis(redis_server: RedisServer) -> None:
    with closing(open_broker(redis_server.url)) as broker:
        test_what_dies_again_meanwhile_is_left(broker)


def test_what_dies_again_meanwhile_is_left(broker: Broker) -> None:
    hand = dying(broker, 1_200)
    run = MorgueBulkAction(watched(broker, lambda: bury(hand)), "q", revive=True, total=1_200, most=None)
    run.carry_out("Reloaded")
    assert (run.done, run.interrupted) == (1_200, False)
    [stats] = broker.inspect.stats()
    assert (stats.length, stats.dead) == (0, 1_200)


def test_what_others_have_buried_meanwhile_is_left(broker: Broker) -> None:
    """Somebody deletes some of those that were there, so that the number alone would not end it."""
    hand = dying(broker, 600)
    late = [f"late{number}" for number in range(300)]

    def meanwhile() -> None:
        broker.operate.delete_dead("q", [f"j{number:04}" for number in range(500, 600)])
        broker.enqueue([job(key) for key in late])
        bury(hand)

    run = MorgueBulkAction(watched(broker, meanwhile), "q", revive=True, total=600, most=None)
    run.carry_out("Reloaded")
    assert run.done == 500
    assert broker.operate.revive("q", late) == 300


def test_ctrl_c_ends_it_between_two_steps(broker: Broker) -> None:
    dying(broker, 1_200)
    before = signal.getsignal(signal.SIGINT)
    interrupting = watched(broker, lambda: signal.raise_signal(signal.SIGINT))
    run = MorgueBulkAction(interrupting, "q", revive=True, total=1_200, most=None)
    run.carry_out("Reloaded")
    assert (run.done, run.interrupted) == (500, True)
    [stats] = broker.inspect.stats()
    assert (stats.length, stats.dead) == (500, 700)
    assert signal.getsignal(signal.SIGINT) is before


# -- as a process --------------------------------------------------------------------------------------

#: Waits in the second of its steps until it is told to go on; a progress bar shows at once.
HALTING = APP.replace(
    'app = Laneway(name="shop")',
    """
import time
from pathlib import Path
from laneway.brokers.sqlite import SQLiteBroker
from laneway.cli import output

output.PATIENCE_S = 0.0

broker = SQLiteBroker("laneway.db")
revive = broker.operate.revive
steps = 0

def halting(queue, keys):
    global steps
    steps += 1
    if steps == 2:
        Path("halted").touch()
        while not Path("go").exists():
            time.sleep(0.005)
    return revive(queue, keys)

broker.operate.revive = halting
app = Laneway(name="shop", broker=broker)
""",
)


def test_ctrl_c_ends_the_process_after_the_step_that_is_under_way(shop: Shop) -> None:
    shop.write("shop.py", HALTING)
    kill(shop, 2_200)
    process = shop.start("deadletter", "reload", *WHICH, "--app", "shop.py")
    wait_until((shop.folder / "halted").exists, log=str)
    process.send_signal(signal.SIGINT)
    (shop.folder / "go").touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, f"Reloaded 1,000 dead letters of {QUEUE}.\n")
    assert err == "It was interrupted; the others are as they were.\n"
    assert stats(shop) == (1_000, 1_200)


def test_a_terminal_is_shown_how_far_it_is(shop: Shop) -> None:
    shop.write("shop.py", HALTING)
    kill(shop, 1_200)
    ours, theirs = pty.openpty()
    process = shop.start(
        "deadletter",
        "reload",
        *WHICH,
        "--app",
        "shop.py",
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=shop.environ | {"TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(theirs)
    said = b""
    while b"500/1200" not in said:
        assert select.select([ours], [], [], 60)[0], said
        said += os.read(ours, 1024)
    assert b"Reloaded" in said
    (shop.folder / "go").touch()
    with suppress(OSError):  # when the other side is closed
        while more := os.read(ours, 1024):
            said += more
    os.close(ours)
    assert process.wait(timeout=30) == 0
    assert f"Reloaded 1,200 dead letters of {QUEUE}.".encode() in said
    assert stats(shop) == (1_200, 0)
