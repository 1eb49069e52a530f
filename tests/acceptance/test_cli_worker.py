"""worker and dev: what they run, what they log, and how they end."""

from __future__ import annotations

import signal

import msgspec
import pytest

from tests.support.shop import CANARY, Shop

pytestmark = pytest.mark.acceptance

LONG = """
import threading
from laneway import Laneway

app = Laneway()

@app.task
def endless() -> None:
    print("begun", flush=True)
    threading.Event().wait()
"""


def test_worker_runs_what_is_there_and_ends(shop: Shop) -> None:
    (good,), (bad,) = shop.put("resize"), shop.put("send")
    done = shop.run("worker", "shop", "--until-empty")
    assert done.returncode == 0
    assert shop.status("default", good) == "gone"
    assert shop.status("mail", bad) == "dead"
    assert f"mail/send {bad} buried" in done.stderr
    assert good not in done.stderr
    assert "\x1b" not in done.stderr


REFUSED = """
from laneway import Laneway
from laneway.errors import BrokerRefusedError

def refuse():
    raise BrokerRefusedError("This user may not count jobs.")

app = Laneway()
app.broker.inspect.stats = refuse

@app.task
def ping() -> None: ...
"""


def test_worker_that_may_not_see_whether_it_is_done_ends_with_2(shop: Shop) -> None:
    shop.write("refused.py", REFUSED)
    done = shop.run("worker", "refused", "--until-empty")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("This user may not count jobs.") == 1


def test_worker_logs_every_job_when_verbose(shop: Shop) -> None:
    (key,) = shop.put("resize")
    assert f"default/resize {key} done" in shop.run("worker", "shop", "--until-empty", "-v").stderr


def test_worker_serves_only_the_queues_it_is_told(shop: Shop) -> None:
    (default,), (mail,), (other,) = shop.put("resize"), shop.put("send"), shop.put("resize", queue="other")
    shop.ok("worker", "shop", "--until-empty", "-Q", "mail,other")
    assert [shop.status("default", default), shop.status("mail", mail), shop.status("other", other)] == [
        "queued",
        "dead",
        "gone",
    ]
    shop.ok("worker", "shop", "--until-empty", "-Q", "mail", "-Q", "default")
    assert shop.status("default", default) == "gone"


def test_unknown_queue_is_refused_and_the_known_ones_named(shop: Shop) -> None:
    shop.put("resize", queue="other")
    assert shop.wrong("worker", "shop", "-Q", "mial") == "There is no queue 'mial'; there is default, mail, other."
    assert shop.wrong("dev", "shop", "-Q", "default,a b").startswith("queue must be 1 to 80 letters")


def test_a_broker_that_is_not_shared_has_one_process(shop: Shop) -> None:
    said = shop.wrong("worker", "shop", "--url", "memory:", "--processes", "2")
    assert said.startswith("memory: is not shared between processes, so there can be no other:")


def test_database_that_cannot_be_opened(shop: Shop) -> None:
    for command in ("worker", "dev"):
        said = shop.wrong(command, "shop", "--url", "sqlite:///no/folder/jobs.db")
        assert said == "The database no/folder/jobs.db cannot be opened: there is no folder no/folder; make it first."
        assert "No broker for 'carrier'" in shop.wrong(command, "shop", "--url", "carrier:")
        assert "No broker for 'carrier'" in shop.wrong(command, "shop", LANEWAY_URL="carrier:")


@pytest.mark.parametrize(
    "args", [["-c", "0"], ["-c", "many"], ["--lease", "0"], ["--slow", "-1"], ["--shutdown-timeout", "x"], ["--nope"]]
)
def test_wrong_options_are_usage_errors(shop: Shop, args: list[str]) -> None:
    assert shop.run("worker", "shop", *args).returncode == 2


def test_url_outranks_the_apps_own(shop: Shop) -> None:
    (key,) = shop.put("resize")
    shop.database.rename(shop.folder / "other.db")
    assert key in shop.run("worker", "shop", "--until-empty", "-v", "--url", "sqlite:///other.db").stderr
    assert not shop.database.exists()


def test_worker_that_is_terminated_ends_with_0(shop: Shop) -> None:
    process = shop.serving("worker", "shop")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_worker_that_gives_up_ends_with_1(shop: Shop) -> None:
    shop.write("long.py", LONG)
    shop.python("import long; long.endless.enqueue()")  # the module itself is imported more than once
    process = shop.serving("worker", "long", "--shutdown-timeout", "0")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert " jobs unfinished: others take them over" in said


def test_dev_says_what_it_serves_and_logs_every_job(shop: Shop) -> None:
    (key,) = shop.put("resize")
    done = shop.run("dev", "shop.py", "--until-empty")
    assert done.returncode == 0
    assert "Serving shop.py:app: 3 tasks, jobs in sqlite:///laneway.db." in done.stderr
    assert "  mail: send" in done.stderr
    assert f"default/resize {key} done" in done.stderr
    assert "\x1b" not in done.stderr


def test_target_may_name_a_worker_of_ones_own(shop: Shop) -> None:
    shop.write(
        "mine.py",
        "from shop import app\n"
        "from laneway import Worker\n"
        "from laneway.config import WorkerOptions\n"
        "class Mine(Worker):\n"
        "    def run(self):\n"
        "        print('mine', self.options.concurrency)\n"
        "        return super().run()\n"
        "ready = Mine(app, WorkerOptions(concurrency=2, until_empty=True))\n",
    )
    assert shop.ok("worker", "mine:Mine", "--until-empty", "-c", "7") == "mine 7\n"
    assert shop.ok("worker", "mine:ready") == "mine 2\n"
    said = shop.wrong("worker", "mine:ready", "-c", "3")
    assert said.startswith("mine:ready is a worker with options of its own, so --concurrency cannot be given")
    assert shop.json("stats", "mine:ready")["queues"]


def test_ticket_that_does_not_fit_shows_no_argument(shop: Shop) -> None:
    app = shop.app()
    app.enqueue_body('{"_job_class":"resize","_job_params":{"path":["' + CANARY + '"]}}')
    app.enqueue_body('{"_job_class":"send","_job_params":{"' + "to" + '":"' + CANARY + '"}}', queue="mail")
    app.enqueue_body(CANARY)
    app.close()
    assert shop.run("worker", "shop", "--until-empty", "-v").returncode == 0
    default = shop.json("stats")["queues"][0]
    assert (default["retries"], default["dead"]) == (1, 1)
    shop.ok("jobs", "--which", "retries")
    shop.ok("morgue")


def test_no_queue_is_not_all_queues(shop: Shop) -> None:
    assert "queue must be 1 to 80 letters" in shop.wrong("worker", "shop", "-Q", "")


@pytest.mark.parametrize("command", ["worker", "dev"])
def test_log_format_json_is_a_document_a_line(shop: Shop, command: str) -> None:
    (key,) = shop.put("send")
    for args, environ in ((["--log-format", "json"], {}), ([], {"LANEWAY_LOG_FORMAT": "json"})):
        process = shop.start(command, "shop", "--until-empty", "-Q", "mail", *args, env=shop.environ | environ)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0
        assert CANARY not in said
        lines = [line for line in said.splitlines() if line.startswith("{")]
        found = [msgspec.json.decode(line) for line in lines]
        assert {each["event"] for each in found} >= {"WorkerStarted", "WorkerStopped"}
        if args:
            assert next(each for each in found if each["event"] == "RunEnded")["key"] == key
        if command == "worker":
            assert lines == said.splitlines()


def test_log_format_that_there_is_not(shop: Shop) -> None:
    assert shop.run("worker", "shop", "--log-format", "xml").returncode == 2
    assert shop.run("worker", "shop", LANEWAY_LOG_FORMAT="xml").returncode == 2


def test_log_format_may_be_chosen_for_a_worker_of_ones_own(shop: Shop) -> None:
    shop.write(
        "mine.py",
        "from shop import app\nfrom laneway import Worker, WorkerOptions\n"
        "ready = Worker(app, WorkerOptions(until_empty=True))\n",
    )
    done = shop.run("worker", "mine:ready", "--log-format", "json")
    assert done.returncode == 0, done.stderr
    assert all(line.startswith("{") for line in done.stderr.splitlines())
