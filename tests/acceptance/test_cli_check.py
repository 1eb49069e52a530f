"""check: findings as sentences, and exit code 3 if there is a problem."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.shop import Shop

pytestmark = pytest.mark.acceptance


def unwell(shop: Shop, *args: str) -> str:
    done = shop.run("check", *args)
    assert done.returncode == 3, done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("problem"))


def test_fresh_app_is_well_and_nothing_is_made(shop: Shop) -> None:
    text = shop.ok("check", "shop")
    assert "shop:app has 3 tasks" in text
    assert "There is no database laneway.db yet" in text
    assert not list(shop.folder.glob("*.db*"))


def test_app_with_jobs_is_well(shop: Shop) -> None:
    shop.put("resize")
    shop.put("resize", queue="other")
    shop.kill_jobs()
    document = shop.json("check", "shop")
    assert set(document) == {"target", "url", "well", "findings"}
    assert (document["target"], document["url"], document["well"]) == ("shop:app", "sqlite:///laneway.db", True)
    notes = [finding["text"] for finding in document["findings"] if finding["level"] == "note"]
    assert any(note.startswith("The queue default has jobs that are due and no worker") for note in notes)
    assert any("no task of this app declares it" in note for note in notes)
    assert any("The morgue of mail holds 1 job" in note for note in notes)


def test_app_without_tasks_is_unwell(shop: Shop) -> None:
    shop.write("empty.py", "from laneway import Laneway\napp = Laneway()\n")
    assert "has no tasks and no listeners" in unwell(shop, "empty")


def test_an_app_that_only_publishes_or_only_listens_is_well(shop: Shop) -> None:
    shop.write("publishes.py", "from laneway import Laneway\napp = Laneway(name='shop')\n")
    assert "publishes:app has no tasks and no listeners: it can publish" in shop.ok("check", "publishes")
    shop.write(
        "listens.py",
        "from laneway import Laneway\napp = Laneway(name='shop')\n"
        "@app.listener('sold', source='stock')\ndef ship(order: int) -> None: ...\n",
    )
    said = shop.run("check", "listens").stdout
    assert "listens:app has 1 listener: ship." in said
    assert "task: ship" not in said


def test_imports_that_fail_are_unwell(shop: Shop) -> None:
    shop.write("lazy.py", "from laneway import Laneway\napp = Laneway(imports=['nowhere_at_all'])\n")
    assert "needs the module 'nowhere_at_all'" in unwell(shop, "lazy")


def test_broker_that_cannot_be_opened_is_unwell(shop: Shop) -> None:
    shop.write("text.db", "this is no database, it only looks like one " * 50)
    assert "is not a database of Laneway's" in unwell(shop, "shop", "--url", "sqlite:///text.db")
    assert "There is no folder" in unwell(shop, "shop", "--url", "sqlite:///no/folder.db")


def test_jobs_for_tasks_that_are_gone_are_unwell(shop: Shop) -> None:
    app = shop.app()
    app.enqueue_body('{"_job_class":"long_gone","_job_params":null}')
    app.close()
    assert "jobs for a task 'long_gone', which this app does not have" in unwell(shop, "shop")
    done = shop.run("check", "shop", "--json")
    assert done.returncode == 3
    assert msgspec.json.decode(done.stdout)["well"] is False
