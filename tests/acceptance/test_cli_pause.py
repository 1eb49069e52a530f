"""pause and resume: no job of a paused queue starts, and stats and check say that it is paused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from laneway.jobs.data import StartedRun
from laneway.testing.conformance.fixtures import ScriptedWorker
from tests.acceptance.keyed_shop import Orders
from tests.support.shop import Shop

pytestmark = pytest.mark.acceptance


def test_nothing_of_a_paused_queue_begins_until_it_is_resumed(shop: Shop) -> None:
    (key,) = shop.put("resize")
    (other,) = shop.put("resize", queue="other")
    assert shop.ok("pause", "default") == "The queue default is paused.\n"
    (late,) = shop.put("resize")
    shop.ok("worker", "shop", "--until-empty", "-Q", "default,other")
    assert [shop.status("default", each) for each in (key, late)] == ["queued", "queued"]
    assert shop.status("other", other) == "gone"
    assert shop.ok("resume", "default") == "The queue default goes on.\n"
    shop.ok("worker", "shop", "--until-empty")
    assert [shop.status("default", each) for each in (key, late)] == ["gone", "gone"]


def test_several_queues_and_every_way_to_name_the_broker(shop: Shop) -> None:
    shop.put("resize")
    shop.put("resize", queue="other")
    assert shop.ok("pause", "default", "other", "--app", "shop").splitlines() == [
        "The queue default is paused.",
        "The queue other is paused.",
    ]
    assert shop.ok("pause", "default", "--url", "sqlite:///laneway.db") == "The queue default is paused already.\n"
    assert shop.ok("resume", "other", LANEWAY_URL="sqlite:///laneway.db") == "The queue other goes on.\n"
    assert shop.ok("resume", "other") == "The queue other is not paused.\n"


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_unknown_queue_is_named_and_the_others_are_done(shop: Shop, command: str) -> None:
    assert shop.wrong(command, "defualt").startswith("There is no database")
    shop.put("resize")
    assert shop.wrong(command, "defualt") == "There is no queue 'defualt'; there is default."
    done = shop.run(command, "defualt", "default")
    assert done.returncode == 2
    assert done.stdout.startswith("The queue default is ")
    assert [queue["queue"] for queue in shop.json("stats")["queues"]] == ["default"]
    assert shop.run(command).returncode == 2


def test_stats_show_which_queues_are_paused(shop: Shop) -> None:
    shop.put("resize")
    shop.put("resize", queue="other")
    shop.ok("pause", "other")
    lines = [line.split() for line in shop.ok("stats").splitlines()]
    assert {line[0]: line[-1] for line in lines if line[0] in ("default", "other")} == {
        "default": "-",
        "other": "paused",
    }
    assert [queue["paused"] for queue in shop.json("stats")["queues"]] == [False, True]


def test_check_mentions_a_paused_queue_that_has_something_due_and_is_well(shop: Shop) -> None:
    shop.put("resize")
    shop.put("resize", queue="mail", delay=3_600)
    shop.ok("pause", "default", "mail")
    document = shop.json("check", "shop")
    assert document["well"] is True
    notes = [finding["text"] for finding in document["findings"] if finding["level"] == "note"]
    (note,) = [note for note in notes if "paused" in note]
    assert note.startswith("The queue default is paused and has jobs that are due; the oldest is ")
    assert note.endswith(" late. It goes on with laneway resume default.")
    assert not any("no worker" in note for note in notes)


def test_deaths_are_shown_call_by_call(tmp_path: Path) -> None:
    shop = Orders(tmp_path)
    first, second = shop.tell("order-1", "paid", "sent")
    with closing(shop.app()) as app:
        hand = ScriptedWorker(app.broker)
        claim = hand.one(queue="orders")
        app.broker.leave(hand.name, [StartedRun("orders", "order-1", claim.token, first)])
    assert "deaths       1\n" in shop.ok("jobs", "show", "order-1")
    (job,) = shop.json("jobs", "show", "order-1", "--body")["jobs"]
    assert (job["deaths"], {call["id"]: call["deaths"] for call in job["payloads"]}) == (1, {first: 1, second: 0})
    lines = shop.ok("jobs", "show", "order-1", "--body").splitlines()
    assert ["deaths 1" in line for line in lines if first in line or second in line] == [True, False]
