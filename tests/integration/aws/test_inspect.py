"""Tests of inspection on SQS: counts, workers, delayed jobs in the table, and the errors for the rest."""

from __future__ import annotations

import time

import pytest

from laneway import Laneway
from laneway.errors import BrokerError
from laneway.jobs.data import Hints, Kind
from laneway.jobs.settlement import buried, done, failed
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, keys, numbers
from tests.support.aws.brokers import TABLE, opened, ready, said
from tests.support.aws.endpoints import Place

DAY = 86_400.0


def test_a_queue_in_numbers(aws: Place) -> None:
    with ready(aws) as broker:
        hand = ScriptedWorker(broker)
        broker.enqueue([job(key) for key in ("done", "dead", "running")])
        claims = {claim.key: claim for claim in hand.claim(limit=3)}
        hand.settle(done(claims["done"]), buried(claims["dead"], "no"))
        broker.enqueue([job("queued"), job("soon", delay_s=600), job("later", delay_s=30 * DAY)])
        broker.enqueue([call("k", "x"), call("k", "y", delay_s=DAY)])
        broker.heartbeat.round()
        found = numbers(broker)
    assert (found.length, found.delayed, found.fresh, found.retries) == (5, 3, 5, 0)
    assert (found.busy, found.dead, found.processed, found.failed) == (1, 1, 1, 1)
    assert (found.shards, found.lag, found.paused) == (1, 0.0, False)


def test_retries_in_the_table_and_what_nobody_polls(aws: Place) -> None:
    with ready(aws) as broker:
        hand = ScriptedWorker(broker)
        broker.enqueue([job("a")])
        hand.settle(failed(hand.one(), "not now", 5, 2 * DAY))
        broker.account.tables.of("q")
        broker.enqueue([call("k", "late", perform_at=time.time() + 0.2)])
        found = numbers(broker)
        assert (found.length, found.fresh, found.retries) == (2, 1, 1)
        page = broker.inspect.listing("q", "retries")
        assert [(view.key, view.retry_count, view.error) for view in page.jobs] == [("a", 0, "not now")]


def test_queues_are_those_that_exist(fake: Place) -> None:
    fake.create_queue("q")
    fake.create_queue("keyed.fifo")
    fake.create_queue("unheard-of")
    with opened(fake, table=None) as broker:
        assert broker.inspect.queues() == {}
        for name in ("q", "keyed", "missing"):
            broker.declare(name, 5)
        assert broker.inspect.queues() == {"keyed": 1, "q": 1}
        assert broker.inspect.exists("unheard-of")
        assert not broker.inspect.exists("nowhere")
        assert broker.inspect.queues() == {"keyed": 1, "q": 1, "unheard-of": 1}
        assert [each.queue for each in broker.inspect.stats()] == ["keyed", "q", "unheard-of"]


def test_a_queue_that_is_gone_is_found_while_the_table_has_jobs_for_it(fake: Place) -> None:
    with ready(fake) as broker:
        url = fake.create_queue("gone")
        broker.enqueue([job("a", queue="gone", delay_s=DAY)])
        fake.sqs_client.delete_queue(QueueUrl=url)
    with opened(fake) as broker:
        broker.declare("q", 1)
        assert broker.inspect.queues() == {"q": 1}
        assert broker.inspect.exists("gone")
        assert broker.inspect.queues() == {"gone": 1, "q": 1}
        assert numbers(broker, "gone").delayed == 1
        assert keys(broker.inspect.listing("gone", "delayed").jobs) == ["a"]
        assert broker.cancel("gone", "a")
        assert not broker.inspect.exists("gone")
        assert broker.inspect.queues() == {"q": 1}


def test_another_process_finds_queues_by_the_table(fake: Place) -> None:
    with ready(fake, "default", "q", "mail") as broker:
        assert broker.operate.pause("mail")
    with opened(fake) as other:
        assert other.inspect.queues() == {"default": 1, "mail": 1}
        assert [(each.queue, each.paused) for each in other.inspect.stats()] == [("default", False), ("mail", True)]
        assert other.operate.resume("mail")
        assert not numbers(other, "mail").paused


def test_workers_are_known_by_the_table(fake: Place) -> None:
    with ready(fake) as broker:
        ScriptedWorker(broker, "w-1")
        with opened(fake) as other:
            other.declare("q", 1)
            assert [(worker.id, worker.queues, worker.dead) for worker in other.inspect.workers()] == [
                ("w-1", ["q"], False)
            ]
    with opened(fake, table=None) as bare, pytest.raises(BrokerError) as error:
        bare.inspect.workers()
    assert "laneway aws create" in said(error)


def test_the_status_of_what_can_be_found(fake: Place) -> None:
    with ready(fake) as broker:
        broker.enqueue([job("later", delay_s=DAY), job("soon", delay_s=60, hints=Hints(cancellable=True)), job("run")])
        broker.enqueue([call("k", "x", delay_s=60)])
        assert broker.status("q", "later") == broker.status("q", "soon") == broker.status("q", "k", "x") == "delayed"
        hand = ScriptedWorker(broker)
        claim = hand.one()
        assert broker.status("q", "run") == "running"
        hand.settle(done(claim))
        with pytest.raises(BrokerError) as error:
            broker.status("q", "run")
        assert "cancellable=True" in said(error)


def test_a_handle_does_not_take_for_gone_what_cannot_be_seen(fake: Place) -> None:
    fake.create_queues("default")
    with opened(fake, table=None) as broker:
        app = Laneway(broker=broker)

        @app.task
        def resize() -> None: ...

        handle = resize.enqueue()
        with pytest.raises(BrokerError) as error:
            handle.status()
        assert "does not tell" in said(error)


def test_jobs_that_wait_are_listed_in_any_order(aws: Place) -> None:
    with ready(aws, "q", "other", partitions=3) as broker:
        at = time.time() + 1_000
        broker.enqueue([job(key, perform_at=at + n) for n, key in enumerate(["c", "e", "a", "d", "b"])])
        broker.enqueue([job("theirs", queue="other", perform_at=at)])
        assert keys(broker.inspect.listing("q", "delayed").jobs) == ["c", "e", "a", "d", "b"]
        assert keys(broker.inspect.listing("q", "delayed", order="key", start="b").jobs) == ["b", "c", "d", "e"]
        assert keys(broker.inspect.listing("q", "delayed", start=at + 2, reverse=True).jobs) == ["a", "e", "c"]
        for options, expected in (({}, "ceadb"), ({"order": "key"}, "abcde"), ({"reverse": True}, "bdaec")):
            found, after = "", None
            while True:
                page = broker.inspect.listing("q", "delayed", after=after, limit=2, **options)
                assert len(page.jobs) <= 2
                found += "".join(keys(page.jobs))
                if (after := page.after) is None:
                    break
            assert found == expected


def test_a_job_that_waits_is_found(fake: Place) -> None:
    with ready(fake) as broker:
        broker.enqueue([job("later", "{}", delay_s=DAY), call("k", "y", delay_s=2 * DAY), call("k", "x", delay_s=DAY)])
        [view] = broker.inspect.find("q", "later")
        assert (view.status, view.kind, view.size, view.attempt) == ("delayed", Kind.PLAIN, 1, 0)
        [view] = broker.inspect.find("q", "k")
        assert [payload.identity for payload in view.payloads] == ["x", "y"]
        assert (view.kind, view.size) == (Kind.KEYED, 2)
        with pytest.raises(BrokerError) as error:
            broker.inspect.find("q", "never")
        assert "neither in the table nor among the dead letters" in said(error)


@pytest.mark.parametrize("which", ["queued", "running"])
def test_what_sqs_does_not_show_is_said(fake: Place, which: str) -> None:
    with ready(fake) as broker, pytest.raises(BrokerError) as error:
        broker.inspect.listing("q", which)  # type: ignore[arg-type]  # one of the listings
    assert "laneway delayed" in said(error)


def test_without_a_table_nothing_that_waits_is_shown(fake: Place) -> None:
    fake.create_queues("q")
    with opened(fake, table=None) as broker, pytest.raises(BrokerError) as error:
        broker.inspect.listing("q", "delayed")
    assert "laneway aws create" in said(error)


def test_a_long_table_is_not_counted_again_at_once(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.brokers.aws.inspect.LONG", 1)
    with ready(fake) as broker:
        broker.enqueue([job("a", delay_s=DAY), job("b", delay_s=DAY)])
        assert numbers(broker).delayed == 2
        before = (
            fake.dynamodb_client.describe_table(TableName=TABLE) and broker.account.clients.requests["dynamodb.Query"]
        )
        broker.enqueue([job("c", delay_s=DAY)])
        assert numbers(broker).delayed == 2
        # Only the names of the queues were asked for.
        assert broker.account.clients.requests["dynamodb.Query"] == before + 1
