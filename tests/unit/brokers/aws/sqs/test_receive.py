"""Tests of the receiver threads: they ask SQS only for wanted messages and give unclaimed messages back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from laneway.brokers.aws.sqs import receive
from laneway.errors import BrokerAwayError
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import call, job, keys, put
from tests.support.aws.servers import FakeServer
from tests.support.aws.turn_bench import Bench, Rig, bench, virtual_server
from tests.support.servers import wait_until

__all__ = ["bench", "virtual_server"]


@pytest.fixture
def rig(fake: FakeServer, bench: Bench) -> Iterator[Rig]:
    """A rig with threads, on a server of its own queue `q`."""
    fake.create_queues("q")
    rig = bench.rig(fake, inline=False)
    yield rig
    for worker in list(rig.inflight.workers):
        rig.turns.leave(worker)


def counts(rig: Rig, name: str = "q") -> tuple[int, int, int]:
    return rig.place.counts(name)


def see(rig: Rig, expected: tuple[int, int, int], name: str = "q") -> None:
    wait_until(lambda: counts(rig, name) == expected, lambda: f"{name}: {counts(rig, name)}")


def test_nobody_is_asked_for_anything_before_somebody_wants_it(rig: Rig, fake: FakeServer) -> None:
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.turn(0)
    assert fake.requests["sqs.ReceiveMessage"] == 0
    assert rig.wait(["q"], 30.0) == {"q"}
    assert keys(hand.claim()) == ["a"]


def test_no_more_is_received_than_is_wanted(rig: Rig, fake: FakeServer) -> None:
    """Other workers may be free for the rest."""
    put(rig, *(f"k{n}" for n in range(30)))  # type: ignore[arg-type]
    hand = rig.hand()
    claims = hand.claim(limit=4)
    while len(claims) < 4:
        rig.wait(["q"], 30.0)
        claims += hand.claim(limit=4 - len(claims))
    visible, in_flight, _ = counts(rig)
    assert (visible, in_flight) == (26, 4)


def test_what_nobody_comes_for_is_given_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "STALE_S", 0.05)
    put(rig, *(f"k{n}" for n in range(5)))  # type: ignore[arg-type]
    rig.enqueue([call("k", "1"), call("k", "2")])
    hand = rig.hand()
    hand.claim(limit=5)
    hand.turn(0)  # it has changed its mind, and waits for nothing
    see(rig, (5 - rig.inflight.count("q"), rig.inflight.count("q"), 0))
    see(rig, (2, 0, 0), "q.fifo")


def test_what_arrives_when_all_have_left_is_given_back_at_once(rig: Rig, fake: FakeServer) -> None:
    """The request was under way; its messages must not stay hidden for half a minute."""
    hand = rig.hand()
    assert hand.claim() == []
    wait_until(lambda: fake.queues["q"].waiting and fake.queues["q.fifo"].waiting, lambda: "nobody asks")
    rig.turns.leave(hand.name)
    fake.requests.clear()
    put(rig, "a")  # type: ignore[arg-type]
    wait_until(lambda: fake.requests["sqs.ChangeMessageVisibilityBatch"], lambda: "it was not given back")
    see(rig, (1, 0, 0))
    wait_until(lambda: not _threads(), lambda: f"{_threads()} are still there")


def test_the_thread_ends_with_the_last_worker_and_comes_with_the_next(rig: Rig) -> None:
    first = rig.hand()
    first.claim()
    assert len(_threads()) == 2
    rig.turns.leave(first.name)
    wait_until(lambda: not _threads(), lambda: f"{_threads()} are still there")
    put(rig, "a")  # type: ignore[arg-type]
    second = rig.hand("worker-2")
    assert rig.wait(["q"], 30.0) == {"q"}
    assert keys(second.claim()) == ["a"]


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("laneway-receive-")]


def test_a_server_that_is_away_is_told_by_turns_until_it_is_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait ends, so that somebody takes a turn; and nothing claims to be well before something was received."""
    monkeypatch.setattr(receive, "BACKOFF_S", (0.01, 0.05))
    hand = rig.hand()
    away = threading.Event()
    away.set()

    def watch(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "receive_message" and away.is_set():
            raise BrokerAwayError("SQS is away.")

    with rig.watched(watch):
        assert rig.wait(["q"], 30.0) == {"q"}
        for _ in range(2):
            with pytest.raises(BrokerAwayError, match="SQS is away"):
                hand.turn(5)
        put(rig, "a")  # type: ignore[arg-type]
        away.clear()
        wait_until(lambda: rig.inflight.of("q")[0].ready, lambda: "nothing was received")
    assert keys(hand.again().claims) == ["a"]


def test_a_receive_whose_answer_was_lost_is_repeated_as_the_same(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a FIFO queue: else its messages would stay hidden, and their groups with them."""
    monkeypatch.setattr(receive, "BACKOFF_S", (0.01, 0.05))
    rig.enqueue([call("k", "1"), call("k", "2")])
    attempts: list[str] = []

    def watch(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "receive_message" and "ReceiveRequestAttemptId" in params and answer is not None:
            attempts.append(params["ReceiveRequestAttemptId"])
            if len(attempts) == 1:
                raise BrokerAwayError("The answer was lost.")

    hand = rig.hand()
    with rig.watched(watch):
        wait_until(lambda: len(attempts) >= 2 or rig.wait(["q"], 0.01) is None, lambda: "nobody asks again")
        wait_until(lambda: rig.inflight.of("q")[1].ready, lambda: "nothing was received")
    assert attempts[0] == attempts[1]
    assert keys(hand.claim()) == ["k"]


def test_a_queue_that_is_deleted_under_us_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch, fake: FakeServer) -> None:
    monkeypatch.setattr(receive, "BACKOFF_S", (0.01, 0.05))
    hand = rig.hand()
    hand.claim()
    for name in ("q", "q.fifo"):
        fake.sqs_client.delete_queue(QueueUrl=fake.queue_url(name))

    def told() -> bool:
        try:
            hand.claim()
        except Exception as error:
            return "laneway aws create" in str(error)
        return False

    wait_until(told, lambda: "it is not told")


def test_a_busy_worker_needs_few_requests(rig: Rig, fake: FakeServer) -> None:
    """Sending, receiving and deleting: at most 0.35 a job. Each runs once, though SQS delivers some twice."""
    fake.faults.duplicates = 0.02
    total = 400
    rig.enqueue([job(f"k{n}") for n in range(total)])
    hand = rig.hand()
    run: list[str] = []
    finished: list[Any] = []
    while len(run) < total:
        # As a fetcher gathers: ten or more settlements a turn, unless there are no more.
        answer = hand.turn(50, *(done(claim) for claim in finished))
        assert answer.refused == []
        finished = answer.claims
        run += keys(answer.claims)
        if len(answer.claims) < 10:
            rig.wait(["q"], 1.0)
    hand.settle(*(done(claim) for claim in finished))
    assert len(run) == len(set(run)) == total
    used = sum(fake.requests[f"sqs.{name}"] for name in ("SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch"))
    assert used / total <= 0.35, fake.requests
    # What is delivered once more is deleted, and not run.
    wait_until(lambda: rig.wait(["q"], 0.01) == set() and counts(rig) == (0, 0, 0), lambda: f"{counts(rig)}")
