"""Tests of handles on SQS with `records=on`: the table stores how jobs ended, heartbeats name the running jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import pytest

from laneway import Key
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.dynamodb import heartbeat
from laneway.brokers.aws.dynamodb.job_history import LONGEST_ID, HistoryRow
from laneway.brokers.aws.dynamodb.tables import Table
from laneway.errors import BrokerAwayError, BrokerError
from laneway.jobs.data import Hints, Status, WorkerView
from laneway.jobs.settlement import buried, done, failed, postponed
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, keys, put
from tests.support.aws.brokers import TABLE, opened, ready, said
from tests.support.aws.endpoints import Place
from tests.support.aws.servers import FakeServer, MotoServer
from tests.support.aws.turn_bench import sentences
from tests.support.aws.workers import PATIENCE_S, Tally, app_on, running, wait_until
from tests.support.findings import check_texts

DAY = 86_400.0


@contextmanager
def recording(place: Place, **options: Any) -> Iterator[AWSBroker]:
    with ready(place, records=True, **options) as broker:
        yield broker


def status(place: Place, key: str, identity: str | None = None) -> Status:
    """A job's status as a process sees it that has just begun."""
    with opened(place, records=True) as other:
        return other.status("q", key, identity)


def table_of(broker: AWSBroker) -> Table:
    table = broker.account.tables.of("q")
    assert table is not None
    return table


def rows(place: Place) -> dict[str, dict[str, Any]]:
    """The records, by id."""
    found = [item for item in place.items(TABLE) if item["scheduler"]["S"].startswith("laneway-records-")]
    assert all("perform_at" not in item for item in found)
    return {item["job_id"]["S"]: item for item in found}


def view(id: str = "w") -> WorkerView:
    return WorkerView(
        id=id, host="h", pid=1, queues=["q"], concurrency=5, lease_s=30, started_at=0.0, seen_at=0.0
    )  # fmt: skip


class Interference:
    """Has one request of an AWS service fail: before or after it is carried out."""

    def __init__(self, broker: AWSBroker, service: str, operation: str, *, after: bool) -> None:
        self.asked = 0
        ask = getattr(broker.account.clients, service)

        def interfere(name: str, **params: Any) -> Any:
            if name != operation:
                return ask(name, **params)
            self.asked += 1
            if self.asked > 1:
                return ask(name, **params)
            if after:
                ask(name, **params)
            raise BrokerAwayError("AWS is away.")

        setattr(broker.account.clients, service, interfere)


# -- every status --------------------------------------------------------------------------------------


def test_a_job_is_queued_runs_and_is_done(aws: Place) -> None:
    with recording(aws) as broker:
        put(broker, "a", "b")
        broker.enqueue([call("k", "x"), call("k", "y")])
        assert broker.status("q", "a") == broker.status("q", "k", "y") == "queued"
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for _ in range(3) for claim in hand.claim(limit=10)}
        assert broker.status("q", "a") == broker.status("q", "k", "x") == "running"
        hand.settle(done(claims["a"]), done(claims["b"]), done(claims["k"]))
        assert [broker.status("q", *where) for where in (("a",), ("b",), ("k", "x"), ("k", "y"))] == ["done"] * 4
        kept = rows(aws)
        assert sorted(kept) == ["a", "b", "x", "y"]
        assert kept["x"]["queue"]["S"] == "q"
        assert float(kept["a"]["expires_at"]["N"]) == pytest.approx(time.time() + DAY + 3_600, abs=120)


def test_a_job_waits_is_cancelled_moved_and_deleted(aws: Place) -> None:
    with recording(aws) as broker:
        broker.enqueue([job("soon", delay_s=60, hints=Hints(cancellable=True)), job("later", delay_s=DAY)])
        broker.enqueue([call("k", "x", delay_s=60)])
        assert broker.status("q", "soon") == broker.status("q", "later") == broker.status("q", "k", "x") == "delayed"
        assert broker.cancel("q", "soon")
        assert broker.cancel("q", "k", "x")
        assert broker.status("q", "soon") == status(aws, "k", "x") == "cancelled"
        assert broker.operate.run_now("q", ["later"]) == 1
        assert broker.status("q", "later") == "queued"
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, 2 * DAY))
        assert broker.status("q", "later") == "delayed"
        assert broker.operate.delete_failed("q", ["later"]) == 1
        assert broker.status("q", "later") == "gone"


def test_what_has_ended_can_no_longer_be_cancelled_or_moved(aws: Place) -> None:
    """As on every broker the answer is False. What may be in its SQS queue is still an error."""
    with recording(aws) as broker:
        broker.enqueue([job("cancelled", delay_s=60, hints=Hints(cancellable=True)), call("k", "x", delay_s=60)])
        put(broker, "done", "dead")
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for _ in range(2) for claim in hand.claim(limit=10)}
        hand.settle(done(claims["done"]), buried(claims["dead"], "no"))
        assert broker.cancel("q", "cancelled")
        assert broker.cancel("q", "k", "x")
        for where in (("cancelled",), ("k", "x"), ("done",), ("dead",)):
            assert not broker.cancel("q", *where)
            assert not broker.reschedule("q", *where, delay_s=60)
        assert broker.operate.revive("q", ["dead"]) == 1
        with pytest.raises(BrokerError, match="is not in the table"):
            broker.cancel("q", "dead")


def test_a_job_dies_is_revived_and_deleted(aws: Place) -> None:
    with recording(aws) as broker:
        put(broker, "a", "b")
        broker.enqueue([call("k", "x"), call("k", "y")])
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for _ in range(3) for claim in hand.claim(limit=10)}
        hand.settle(buried(claims["a"], "no"), buried(claims["b"], "no"), buried(claims["k"], "no", done=1))
        assert [broker.status("q", *where) for where in (("a",), ("b",), ("k", "y"))] == ["dead"] * 3
        assert broker.status("q", "k", "x") == "done"
        assert float(rows(aws)["a"]["expires_at"]["N"]) > time.time() + 14 * DAY
        assert broker.operate.revive("q", ["a", "k"]) == 2
        assert broker.operate.delete_dead("q", ["b"]) == 1
        assert [broker.status("q", *where) for where in (("a",), ("b",), ("k", "y"))] == ["queued", "gone", "queued"]
        revived = {claim.key: claim for _ in range(3) for claim in hand.claim(limit=10)}
        assert broker.status("q", "a") == "running"
        hand.settle(done(revived["a"]), buried(revived["k"], "no"))
        assert (broker.status("q", "a"), broker.status("q", "k", "y")) == ("done", "dead")


def test_a_failed_job_is_buried_by_hand(fake: Place) -> None:
    with recording(fake) as broker:
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(), "no", 5, DAY))
        assert broker.operate.bury_failed("q", ["a"]) == 1
        assert broker.status("q", "a") == "dead"
        assert broker.operate.revive("q", ["a"]) == 1
        assert broker.status("q", "a") == "queued"


def test_what_is_not_over_has_no_record(fake: Place) -> None:
    with recording(fake) as broker:
        put(broker, "retried", "postponed", "released")
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for claim in hand.claim()}
        hand.settle(failed(claims["retried"], "no", 5, 60.0), postponed(claims["postponed"], 60.0))
        broker.leave("worker-1")
        assert rows(fake) == {}
        assert {broker.status("q", key) for key in claims} == {"queued"}


def test_a_job_that_was_revived_and_has_ended_already_is_not_taken_for_queued(aws: Place) -> None:
    with recording(aws) as broker:
        table, died_at = table_of(broker), time.time() - 60
        table.history.record("q", {"dead": HistoryRow("dead", died_at), "done": HistoryRow("done", died_at + 1)})
        table.history.record("q", {"again": HistoryRow("dead", died_at + 1)})
        table.history.amend_dead("q", dict.fromkeys(("dead", "done", "again", "unrecorded"), died_at), "queued")
        found = {
            id: record.status for id in ("dead", "done", "again", "unrecorded") if (record := table.history.get(id))
        }
        assert found == {"dead": "queued", "done": "done", "again": "dead", "unrecorded": "queued"}


def test_reviving_goes_on_although_the_table_is_away(fake: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Else it would be done twice. What is kept of the job is true again when it has ended."""
    with recording(fake) as broker:
        put(broker, "a")
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(), "no"))
        Interference(broker, "dynamodb", "update_item", after=False)
        assert broker.operate.revive("q", ["a"]) == 1
        assert ["still kept that they are dead" in each for each in sentences(caplog, logging.WARNING)] == [True]
        assert broker.status("q", "a") == "dead"
        claim = hand.one()
        hand.settle(done(claim))
        assert broker.status("q", "a") == "done"


# -- what runs -----------------------------------------------------------------------------------------


def test_what_runs_elsewhere_is_known_by_heartbeats(aws: Place) -> None:
    with recording(aws) as broker:
        put(broker, "a", "b")
        broker.enqueue([call("k", "x")])
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for _ in range(3) for claim in hand.claim(limit=10)}
        assert status(aws, "a") == "queued"
        broker.heartbeat.round()
        assert status(aws, "a") == status(aws, "k", "x") == "running"
        hand.settle(done(claims["a"]))
        assert status(aws, "a") == "done"
        broker.leave("worker-1")
        assert status(aws, "b") == "queued"


def test_a_dead_worker_runs_nothing(fake: Place) -> None:
    with recording(fake) as broker:
        table = table_of(broker)
        table.workers.save(view("w-1"), time.time() - 100, ["a"])
        table.workers.save(view("w-2"), time.time(), ["b"])
        assert set(table.workers.running()) == {"b"}
        assert [worker.dead for worker in broker.inspect.workers()] == [True, False]
        assert (broker.status("q", "a"), broker.status("q", "b")) == ("queued", "running")


def test_heartbeats_are_read_once_a_second_and_stay_small(fake: FakeServer) -> None:
    with recording(fake) as broker:
        ScriptedWorker(broker)
        ids = ["x" * (heartbeat.LONGEST_ID + 1), *(f"job-{n}" for n in range(heartbeat.MOST_IDS + 9))]
        broker.inflight.running = lambda worker: ids  # type: ignore[method-assign]
        broker.heartbeat.round()
        before = fake.requests["dynamodb.Query"]
        assert broker.status("q", "job-0") == broker.status("q", f"job-{heartbeat.MOST_IDS - 1}") == "running"
        assert broker.status("q", f"job-{heartbeat.MOST_IDS}") == "queued"
        assert fake.requests["dynamodb.Query"] - before <= 2


# -- writing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("verdict", ["done", "dead"])
def test_an_answer_that_is_lost_loses_nothing(fake: Place, after: bool, verdict: str) -> None:
    with recording(fake) as broker:
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        table_of(broker)
        lost = Interference(broker, "dynamodb", "batch_write_item", after=after)
        with pytest.raises(BrokerAwayError, match="How 1 jobs of the queue q ended was not kept"):
            hand.settle(done(claim) if verdict == "done" else buried(claim, "no"))
        assert fake.counts("q") == (0, 1, 0)
        assert hand.again().refused == []
        assert fake.counts("q") == (0, 0, 0)
        assert fake.counts("q-deadletter")[0] == (verdict == "dead")
        assert broker.status("q", "a") == verdict
        assert lost.asked == 2


def test_a_record_comes_before_the_delete_and_once_for_a_turn(fake: FakeServer) -> None:
    """Thirty jobs are two requests; the turn is repeated after the delete failed, and nothing is written again."""
    with recording(fake) as broker:
        put(broker, *(str(n) for n in range(30)))
        hand = ScriptedWorker(broker)
        claims = hand.claim()
        assert len(claims) == 30
        fake.requests.clear()
        Interference(broker, "sqs", "delete_message_batch", after=False)
        with pytest.raises(BrokerAwayError):
            hand.settle(*map(done, claims))
        assert status(fake, "7") == "done"
        assert hand.again().refused == []
        assert fake.requests["dynamodb.BatchWriteItem"] == 2
        assert fake.counts("q") == (0, 0, 0)
        assert len(rows(fake)) == 30


def test_what_dynamodb_leaves_undone_is_tried_again(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with recording(fake) as broker:
        put(broker, "a", "b", "c")
        hand = ScriptedWorker(broker)
        claims = hand.claim()
        ask, asked = broker.account.clients.dynamodb, list[int]()

        def partly(operation: str, **params: Any) -> dict[str, Any]:
            if operation != "batch_write_item":
                return ask(operation, **params)
            ((name, requests),) = params["RequestItems"].items()
            asked.append(len(requests))
            answer = ask(operation, RequestItems={name: requests[:1]})
            return {**answer, "UnprocessedItems": {name: requests[1:]} if requests[1:] else {}}

        monkeypatch.setattr(broker.account.clients, "dynamodb", partly)
        hand.settle(*map(done, claims))
        assert asked == [3, 2, 1]
        assert sorted(rows(fake)) == ["a", "b", "c"]


def test_a_claim_that_came_too_late_is_not_recorded(fake: Place) -> None:
    with recording(fake) as broker:
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        broker.leave("worker-1")
        assert ScriptedWorker(broker, "worker-2").settle(done(claim)) == ["a"]
        assert rows(fake) == {}


def test_a_stranger_with_a_long_id_hinders_nobody(aws: Place) -> None:
    with recording(aws) as broker:
        put(broker, "a")
        long = f'{{"_job_class":"T","_job_params":null,"_job_id":"{"x" * (LONGEST_ID + 1)}"}}'
        fifo = {"MessageGroupId": "k", "MessageDeduplicationId": "k"}
        aws.sqs_client.send_message(QueueUrl=aws.queue_url("q.fifo"), MessageBody=long, **fifo)
        hand = ScriptedWorker(broker)
        claims = hand.claim()
        assert len(claims) == 2
        assert hand.settle(*map(done, claims)) == []
        assert list(rows(aws)) == ["a"]
        assert (aws.counts("q"), aws.counts("q.fifo")) == ((0, 0, 0), (0, 0, 0))


# -- what cannot be known ------------------------------------------------------------------------------


def made(days_ago: float) -> str:
    """An id of so many days ago."""
    return f"{int((time.time() - days_ago * DAY) * 1_000):012x}".ljust(32, "0")


def test_what_ended_more_than_a_day_ago_is_not_taken_for_queued(fake: Place) -> None:
    with recording(fake) as broker:
        young, old, ended, revived = made(0.9), made(1.1), made(1.2), made(1.3)
        put(broker, young, old, ended, revived)
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for claim in hand.claim()}
        hand.settle(done(claims[ended]), buried(claims[revived], "no"))
        broker.leave("worker-1")
        assert broker.status("q", young) == "queued"
        assert broker.status("q", ended) == "done"
        assert broker.operate.revive("q", [revived]) == 1
        assert broker.status("q", revived) == "queued"
        with pytest.raises(BrokerError) as error:
            broker.status("q", old)
        assert "more than a day ago" in said(error)
        hand = ScriptedWorker(broker, "worker-2")
        assert old in keys(hand.claim())
        assert broker.status("q", old) == "running"


def test_without_records_nothing_is_written_and_it_is_said_how_to_have_them(fake: Place) -> None:
    with ready(fake) as broker:
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        claims = {claim.key: claim for claim in hand.claim()}
        hand.settle(done(claims["a"]), buried(claims["b"], "no"))
        broker.enqueue([job("later", delay_s=DAY)])
        broker.heartbeat.round()
        assert broker.cancel("q", "later")
        assert broker.operate.revive("q", ["b"]) == 1
        assert rows(fake) == {}
        assert not any("running" in item for item in fake.items(TABLE))
        with pytest.raises(BrokerError) as error:
            broker.status("q", "a")
        assert "records=on" in said(error)


def test_records_need_the_table(fake: Place, caplog: pytest.LogCaptureFixture) -> None:
    """It is said when somebody asks, by `laneway check`, and once by a worker, which works all the same."""
    fake.create_queues("q", MessageRetentionPeriod=1_209_600)
    with opened(fake, table=None, records=True) as broker:
        broker.declare("q", 1)
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        for claim in hand.claim():
            assert hand.settle(done(claim)) == []
        with pytest.raises(BrokerError) as error:
            broker.status("q", "a")
        assert "make the table q with `laneway aws create`" in said(error)
        assert [each for each in check_texts(broker) if "records=on" in each and "There is no table q" in each]
        assert ["is not kept" in each for each in sentences(caplog, logging.WARNING)] == [True]
    assert fake.counts("q") == (0, 0, 0)


# -- as users see it -----------------------------------------------------------------------------------


def test_handles_tell_where_jobs_are(aws: MotoServer | FakeServer) -> None:
    aws.create_queues("default")
    aws.create_table(TABLE)
    with app_on(aws, table=TABLE, records=True) as app:
        begun, go_on = threading.Event(), threading.Event()

        @app.task
        def slow() -> None:
            begun.set()
            go_on.wait(PATIENCE_S)

        @app.task(max_retry_count=0)
        def wrong(key: Annotated[str, Key]) -> None:
            raise ValueError("no")

        runs, dies, waits = slow.enqueue(), wrong.enqueue("k"), slow.using(delay=DAY).enqueue()
        assert (runs.status(), dies.status(), waits.status()) == ("queued", "queued", "delayed")
        with running(app):
            assert begun.wait(PATIENCE_S)
            assert runs.status() == "running"
            with app_on(aws, table=TABLE, records=True) as other:
                assert other.broker.status("default", runs.id) in ("queued", "running")
            go_on.set()
            wait_until(lambda: runs.status() == "done" and dies.status() == "dead")
        assert waits.cancel()
        assert (runs.status(), dies.status(), waits.status()) == ("done", "dead", "cancelled")


def test_a_busy_worker_needs_few_requests_for_them(fake: FakeServer) -> None:
    """About a tenth of a request for a job, as many as there are deletes; one by one it would be 1."""
    fake.create_queues("default")
    fake.create_table(TABLE)
    jobs = 500
    with app_on(fake, table=TABLE, records=True) as app:
        tally = Tally()

        @app.task
        def note(number: int) -> None:
            tally.note(number)

        handles = note.enqueue_many([(number,) for number in range(jobs)])
        fake.requests.clear()
        with running(app):
            tally.wait_for(jobs)
            wait_until(lambda: fake.queues["default"].counts.visible == fake.queues["default"].counts.in_flight == 0)
        requests = sum(count for name, count in fake.requests.items() if name.startswith("dynamodb."))
        assert requests / jobs <= 0.15, fake.requests
        assert len(rows(fake)) == jobs
        assert {handle.status() for handle in handles[:5]} == {"done"}
