"""The command line on AWS: `aws create`, `aws iam`, inspect, operate, and sentences where SQS has no such feature."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laneway.brokers.aws.broker import AWSBroker
from laneway.jobs.data import NewJob
from laneway.jobs.settlement import buried, failed
from laneway.testing.conformance.fixtures import ScriptedWorker
from tests.acceptance.aws_console import Console
from tests.support.aws.iam_guard import guarded
from tests.support.shop import CANARY

pytestmark = pytest.mark.acceptance

APP = """
from typing import Annotated
from laneway import Key, Laneway

app = Laneway(name="shop")

@app.task(queue="mail")
def send(to: str) -> None: ...

@app.task(queue="mail")
def sync(order: Annotated[str, Key], what: str = "") -> None: ...
"""
DAY = 86_400.0


@pytest.fixture
def console(aws_console: Console) -> Console:
    aws_console.write(APP)
    return aws_console


@pytest.fixture
def made(console: Console) -> Console:
    """One whose queues and table exist."""
    console.ok("aws", "create", console.target)
    return console


def put(console: Console) -> None:
    """One job of each kind: dead, to be retried, delayed, queued."""
    broker = console.broker()
    hand = ScriptedWorker(broker)

    def job(key: str, **fields: Any) -> NewJob:
        body = json.dumps({"_job_class": "send", "_job_params": {"to": CANARY}}, separators=(",", ":"))
        return NewJob(queue="mail", key=key, body=body, **fields)

    broker.enqueue([job("dead"), job("retried")])
    claims = {claim.key: claim for claim in hand.claim(queue="mail")}
    hand.settle(buried(claims["dead"], "the server said no"), failed(claims["retried"], "x", 5, DAY), queue="mail")
    broker.enqueue([job("delayed", delay_s=2 * DAY), job("queued")])
    broker.leave(hand.name)
    broker.close()


def test_what_an_app_needs_is_made(console: Console) -> None:
    dry = console.ok("aws", "create", console.target, "--dry-run")
    assert [line.split()[0] for line in dry.splitlines()] == ["missing"] * 5
    done = console.run("check", console.target)
    assert done.exit_code == 3
    assert "There is no FIFO queue mail.fifo, which the keyed jobs of sync go to" in done.stdout
    assert "a worker or the first job makes it" not in done.stdout
    steps = console.json("aws", "create", console.target)["steps"]
    assert [step["level"] for step in steps] == ["made"] * 5
    assert "mail-deadletter.fifo" in steps[2]["text"]
    again = console.ok("aws", "create", console.target)
    assert [line.split()[0] for line in again.splitlines()] == ["ok"] * 5
    report = console.json("check", console.target)
    assert report["well"], report


def test_what_exists_and_is_wrong_ends_with_3(console: Console) -> None:
    console.server.create_queue("mail")
    done = console.run("aws", "create", console.target, "--no-table")
    assert done.exit_code == 3
    assert "problem  The SQS queue mail has no redrive policy" in done.stdout
    assert "table" not in done.stdout


def test_the_policy(console: Console) -> None:
    printed = json.loads(console.ok("aws", "iam", console.target, "--account", "123456789012"))
    assert [statement["Sid"] for statement in printed["Statement"]] == [
        *("LanewayQueues", "LanewayDeadLetters", "LanewayTables")
    ]
    producer = json.loads(console.ok("aws", "iam", console.target, "--role", "producer", "--account", "1" * 12))
    assert "sqs:ReceiveMessage" not in json.dumps(producer)
    assert ":123456789012:" in console.ok("aws", "iam", console.target), "STS says whose the credentials are"
    assert "12 digits" in console.wrong("aws", "iam", console.target, "--account", "me")


@pytest.fixture
def allowed(made: Console, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have all that follows be done by somebody who may do what is printed for a role, and no more."""

    def allow(role: str) -> None:
        policy = json.loads(made.ok("aws", "iam", made.target, "--role", role))
        monkeypatch.setattr(
            "laneway.brokers.aws.account.Clients", lambda settings: guarded(made.server, settings, policy)
        )

    # Others use the same table: what they have there may not be looked at, and is none of our business.
    for name in ("default", "theirs"):
        made.server.create_queues(name)
    other = AWSBroker(made.broker().account.settings, inline=True)
    other.enqueue([NewJob(queue=name, key=name, body="{}", delay_s=DAY) for name in ("default", "theirs")])
    assert other.operate.pause("theirs")
    other.close()
    return allow


def test_what_an_operator_is_allowed_suffices(made: Console, allowed: Callable[[str], None]) -> None:
    put(made)
    allowed("operator")
    assert [each["queue"] for each in made.json("stats", made.target)["queues"]] == ["mail"]
    assert [each["queue"] for each in made.json("stats")["queues"]] == ["mail"]
    assert made.ok("workers", made.target).startswith("There are no workers")
    assert [each["key"] for each in made.json("delayed", made.target)["jobs"]] == ["retried", "delayed"]
    assert [each["key"] for each in made.json("morgue", made.target)["jobs"]] == ["dead"]
    assert made.ok("pause", "mail", "--app", made.target) == "The queue mail is paused.\n"
    assert made.ok("resume", "mail") == "The queue mail goes on.\n"
    assert made.ok("morgue", "revive", "dead") == "Revived 1 job.\n"
    assert made.ok("delayed", "run", "delayed", "--app", made.target) == "Moved to now: 1 job.\n"


def test_what_a_worker_is_allowed_suffices_for_the_check(made: Console, allowed: Callable[[str], None]) -> None:
    allowed("worker")
    report = made.json("check", made.target)
    assert report["well"], report


def test_other_brokers_are_not_on_aws(console: Console, tmp_path: Path) -> None:
    sqlite = f"sqlite:///{tmp_path / 'x.db'}"
    assert "not on AWS" in console.wrong("aws", "create", console.target, url=sqlite)


def test_looking(made: Console) -> None:
    put(made)
    [mail] = [each for each in made.json("stats", made.target)["queues"] if each["queue"] == "mail"]
    assert (mail["length"], mail["delayed"], mail["retries"], mail["dead"]) == (3, 2, 1, 1)
    [delayed] = made.json("delayed", "-Q", "mail", "-n", "1", "--reverse")["jobs"]
    assert (delayed["key"], delayed["task"]) == ("delayed", "send")
    [retry] = made.json("jobs", "list", made.target, "--which", "retries")["jobs"]
    assert (retry["key"], retry["error"]) == ("retried", "x")
    [dead] = made.json("morgue", made.target)["jobs"]
    assert (dead["key"], dead["error"]) == ("dead", "the server said no")
    assert "the server said no" in made.ok("morgue", "show", "dead", "--app", made.target)
    assert made.ok("workers", made.target).startswith("There are no workers")
    sentence = made.wrong("jobs", made.target)
    assert "SQS does not show which jobs are queued" in sentence
    assert "laneway delayed" in sentence
    assert "SQS does not tell" in made.wrong("jobs", "show", "queued", "-Q", "mail")
    assert "no shards" in made.wrong("reshard", "mail", "3")
    # Without the app: by the table.
    assert [each["queue"] for each in made.json("stats")["queues"]] == ["mail"]


def test_acting(made: Console) -> None:
    put(made)
    assert made.ok("morgue", "revive", "dead", "-Q", "mail") == "Revived 1 job.\n"
    assert made.ok("jobs", "bury", "--all-failed", "-Q", "mail") == "Buried 1 job.\n"
    assert made.ok("morgue", "delete", "--all", "--yes", "-Q", "mail") == "Deleted 1 job.\n"
    assert made.ok("delayed", "reschedule", "delayed", "--delay", "7d", "-Q", "mail") == "Rescheduled 1 job.\n"
    assert made.ok("delayed", "run", "delayed", "-Q", "mail") == "Moved to now: 1 job.\n"
    assert "neither in the table nor among the dead letters" in made.wrong("jobs", "cancel", "delayed", "-Q", "mail")
    assert made.server.counts("mail")[0] == 3
    assert made.ok("pause", "mail") == "The queue mail is paused.\n"
    assert made.ok("pause", "mail") == "The queue mail is paused already.\n"
    assert made.ok("resume", "mail") == "The queue mail goes on.\n"
    assert "There is no queue 'nowhere'" in made.wrong("pause", "nowhere")


def test_jobs_for_a_queue_that_is_gone_can_be_seen_and_cancelled(made: Console) -> None:
    broker = made.broker()
    made.server.create_queue("gone")
    broker.enqueue([NewJob(queue="gone", key=key, body="{}", delay_s=DAY) for key in ("a", "b")])
    broker.close()
    made.server.sqs_client.delete_queue(QueueUrl=made.server.queue_url("gone"))
    assert [job["key"] for job in made.json("delayed", "-Q", "gone")["jobs"]] == ["a", "b"]
    assert made.ok("delayed", "cancel", "a", "-Q", "gone") == "Cancelled 1 job.\n"
    assert made.ok("delayed", "cancel", "b", "-Q", "gone") == "Cancelled 1 job.\n"
    assert "There is no queue 'gone'" in made.wrong("delayed", "-Q", "gone")


def test_without_a_table_it_is_said_what_is_missing(console: Console) -> None:
    bare = console.server.url(wait=0)
    console.ok("aws", "create", console.target, "--no-table", url=bare)
    assert console.ok("check", console.target, url=bare)
    for command in (["workers"], ["delayed"]):
        assert "laneway aws create" in console.wrong(*command, console.target, url=bare)
    assert "laneway aws create" in console.wrong("pause", "mail", url=bare)
    assert console.json("morgue", console.target, url=bare)["jobs"] == []
