"""Tests of FIFO groups: calls of a key run strictly in order, in one claim at a time, and a failure stops them."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from laneway.brokers.aws.sqs.inflight import HeldMessage, QueueBuffer
from laneway.brokers.aws.sqs.message import Message, MessageNote, SQSQueue
from laneway.jobs.data import Claim, Kind
from laneway.jobs.settlement import Settlement, buried, done, failed, postponed, released
from laneway.testing.conformance.fixtures import attempts, bodies, call, calls, keys
from tests.support.aws.endpoints import Place
from tests.support.aws.servers import FakeServer
from tests.support.aws.turn_bench import Bench, Rig, bench, virtual_server

__all__ = ["bench", "virtual_server"]


def test_a_group_keeps_its_messages_in_order_whatever_came_first() -> None:
    sqs_queue = SQSQueue("q", "q.fifo", "url", fifo=True)
    buffer = QueueBuffer(sqs_queue)
    for sequence in (3, 1, 2):
        note = MessageNote(str(sequence), key="k")
        message = Message(sqs_queue, "r", str(sequence), "", note, {}, Kind.KEYED, 1, 0.0, sequence)
        group = buffer.add(HeldMessage(message))
    assert [held.id for held in group.take(2)] == ["1", "2"]
    assert not buffer.tidy(group)  # claimed: the rest waits
    assert buffer.freed(group)
    assert [held.id for held in group.take(2)] == ["3"]
    assert not buffer.freed(group)
    assert buffer.groups == {}


def test_calls_of_a_key_come_in_one_claim_as_they_were_sent(aws: Place, bench: Bench) -> None:
    aws.create_queues("q")
    rig = bench.rig(aws)
    rig.enqueue([call("k", f"c{n}", headers={"n": str(n)}) for n in range(5)])
    claim = rig.hand().one()
    assert (claim.kind, claim.key, claim.retry_count, claim.attempt, claim.headers) == (Kind.KEYED, "k", -1, 1, None)
    assert [(each.identity, each.attempt, each.headers) for each in claim.payloads] == [
        (f"c{n}", 1, {"n": str(n)}) for n in range(5)
    ]


def test_a_claim_has_no_more_calls_than_were_asked_for(bench: Bench) -> None:
    """The rest waits here until that is settled, and comes next, in order."""
    rig, server, _ = bench.virtual()
    calls(rig, "k", *(f"c{n}" for n in range(8)))  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one(max_payloads=3)
    assert bodies(claim) == ["c0", "c1", "c2"]
    assert hand.claim(max_payloads=3) == []
    answer = hand.turn(5, done(claim), max_payloads=3)
    assert [bodies(each) for each in answer.claims] == [["c3", "c4", "c5"]]
    answer = hand.turn(5, done(answer.claims[0]), max_payloads=3)
    assert [bodies(each) for each in answer.claims] == [["c6", "c7"]]
    hand.settle(done(answer.claims[0]))
    assert server.counts("q.fifo") == (0, 0, 0)


def test_a_key_that_runs_is_handed_to_nobody_else(aws: Place, bench: Bench) -> None:
    """Neither in this process nor in another."""
    aws.create_queues("q")
    rig, other = bench.rig(aws), bench.rig(aws)
    calls(rig, "k", "a", "b")  # type: ignore[arg-type]
    hand, second, stranger = rig.hand(), rig.hand("worker-2"), other.hand("worker-3")
    claim = hand.one()
    calls(rig, "k", "c")  # type: ignore[arg-type]
    assert second.claim() == []
    assert stranger.claim() == []
    hand.settle(done(claim))
    assert bodies(stranger.one()) == ["c"]


def test_a_failed_call_stays_at_the_head_of_its_key(bench: Bench) -> None:
    """What succeeded before it is gone; what stands behind it waits with it, for whoever comes."""
    rig, server, clock = bench.virtual()
    calls(rig, "k", "a", "b", "c")  # type: ignore[arg-type]
    calls(rig, "l", "x")  # type: ignore[arg-type]
    hand, stranger = rig.hand(), bench.rig(server, clock).hand("worker-2")
    claims = {claim.key: claim for claim in hand.claim()}
    hand.settle(failed(claims["k"], "no", 5, 20.0, done=1), done(claims["l"]))
    calls(rig, "k", "d")  # type: ignore[arg-type]
    clock.advance(19)
    assert hand.claim() == []
    assert stranger.claim() == []
    clock.advance(2)
    claim = hand.one()
    assert (bodies(claim), claim.retry_count, claim.error, claim.attempt) == (["b", "c", "d"], 0, "no", 2)
    assert attempts(claim) == {"b": 2, "c": 1, "d": 1}
    hand.settle(failed(claim, "again", 5, 0.0))
    claim = hand.one()
    assert (claim.retry_count, claim.error, attempts(claim)) == (1, "again", {"b": 3, "c": 1, "d": 1})
    hand.settle(done(claim))
    assert server.counts("q.fifo") == (0, 0, 0)


def test_a_stranger_does_not_know_how_often_a_call_has_failed_without_a_table(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    calls(rig, "k", "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(failed(hand.one(), "no", 5, 20.0))
    clock.advance(21)
    claim = bench.rig(server, clock).hand("worker-2").one()
    assert (bodies(claim), claim.retry_count, claim.attempt) == (["a", "b"], -1, 1)


def test_a_call_that_rests_for_days_is_hidden_again_and_again(bench: Bench) -> None:
    """SQS hides it for 12 hours at most; received before its time it goes back, with all that stands behind it."""
    rig, _, clock = bench.virtual()
    calls(rig, "k", "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(failed(hand.one(), "no", 5, 100_000.0))
    for _ in range(33):
        clock.advance(3_000)
        assert hand.claim() == []
    clock.advance(1_001)
    claim = hand.one()
    assert (bodies(claim), claim.retry_count) == (["a", "b"], 0)


def test_a_postponed_call_keeps_its_place_and_is_not_counted(bench: Bench) -> None:
    rig, _, clock = bench.virtual()
    calls(rig, "k", "a", "b", "c")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(postponed(hand.one(), 30.0, done=1))
    clock.advance(31)
    claim = hand.one()
    assert (bodies(claim), claim.retry_count, attempts(claim)) == (["b", "c"], -1, {"b": 2, "c": 1})
    assert rig.counts == [("q", 1, 0)]


def test_what_follows_a_buried_call_starts_anew(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    calls(rig, "k", "a", "b", "c")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()
    hand.settle(failed(claim, "no", 5, 0.0))
    answer = hand.turn(5, buried(hand.one(), "never"))
    (claim,) = answer.claims
    assert (bodies(claim), claim.retry_count, claim.error, attempts(claim)) == (["b", "c"], -1, None, {"b": 1, "c": 1})


@pytest.mark.parametrize("finished", [0, 1])
def test_what_was_not_begun_goes_back_or_waits_for_the_next_turn(bench: Bench, finished: int) -> None:
    """All of it is given back if nothing was begun; behind a finished call it stays with this process."""
    rig, server, _ = bench.virtual()
    calls(rig, "k", "a", "b", "c", "d")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(released(hand.one(max_payloads=3), done=finished))
    assert server.counts("q.fifo") == ((0, 3, 0) if finished else (4, 0, 0))
    claim = hand.one()
    assert bodies(claim) == ["a", "b", "c", "d"][finished:]
    assert set(attempts(claim).values()) == {1}


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("settlement", [released, lambda claim: failed(claim, "no", 5, 0.0)])
def test_what_was_sent_behind_a_call_that_goes_back_does_not_overtake_it(
    bench: Bench, settlement: Callable[[Claim], Settlement], shuffled: bool
) -> None:
    """SQS hands out both at once, to the receiver of this very process, while the settlement is still under way."""
    rig, server, clock = bench.virtual()
    server.faults.reordered = float(shuffled)
    calls(rig, "k", "a")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()
    calls(rig, "k", "b", "c")  # type: ignore[arg-type]
    received: list[str] = []

    def watch(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "receive_message" and answer is not None:
            received.extend(each["Body"] for each in answer.get("Messages", ()))
        if operation == "change_message_visibility_batch" and answer is not None and not received:
            rig.wait(["q"], 0.0)

    with rig.watched(watch):
        hand.settle(settlement(claim))
    assert sorted(received) == ["a", "b", "c"]
    assert hand.claim() == []
    clock.advance(1.1)
    assert bodies(hand.one()) == ["a", "b", "c"]


def test_a_ticket_that_says_when_waits_and_its_group_with_it(bench: Bench) -> None:
    """The Ruby original writes such tickets; a FIFO queue cannot delay one message alone."""
    rig, server, clock = bench.virtual()
    url, ticket = server.queue_url("q.fifo"), '{"_job_class":"T","_execute_after":%d}'
    for number, body in enumerate([ticket % (clock.now() + 60), '{"_job_class":"T"}']):
        rig.clients.sqs(
            "send_message", QueueUrl=url, MessageBody=body, MessageGroupId="k", MessageDeduplicationId=str(number)
        )
    hand = rig.hand()
    assert hand.claim() == []
    clock.advance(30)
    assert hand.claim() == []
    clock.advance(31)
    assert len(hand.one().payloads) == 2


def test_a_claim_whose_time_is_up_is_refused_whole(bench: Bench) -> None:
    """Another process has the group then. Nothing of what stood behind it is kept either."""
    rig, server, clock = bench.virtual()
    calls(rig, "k", "a", "b", "c")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one(max_payloads=2)
    clock.advance(31)
    other = bench.rig(server, clock).hand("worker-2")
    theirs = other.one()
    assert bodies(theirs) == ["a", "b", "c"]
    assert hand.turn(5, done(claim)).claims == []
    assert hand.again().refused == ["k"]
    assert other.settle(done(theirs)) == []
    assert server.counts("q.fifo") == (0, 0, 0)


def test_a_group_that_is_received_again_while_it_runs_here_does_not_run_beside_itself(bench: Bench) -> None:
    """Its time was up, and nobody else was quicker: it is ours again, and can be settled."""
    rig, _, clock = bench.virtual()
    calls(rig, "k", "a", "b", "c")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one(max_payloads=2)
    clock.advance(31)
    assert hand.claim() == []
    assert hand.settle(done(claim)) == []
    assert bodies(hand.one()) == ["c"]


def test_keys_that_sqs_does_not_take_as_groups_are_kept_apart(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    names = ["with space", "ü" * 100, "#x", "x" * 500]
    rig.enqueue([call(name, f"{n}-{i}") for n, name in enumerate(names) for i in range(2)])
    claims = rig.hand().claim()
    assert sorted(keys(claims)) == sorted(names)
    assert {len(claim.payloads) for claim in claims} == {2}


# -- order under load ----------------------------------------------------------------------------------


def _run(rig: Rig, threads: int, expected: int) -> tuple[dict[str, list[int]], int]:
    """Have threads run all calls. Returns the order of each key's, and how many keys ran at once at most."""
    hand = rig.hand()
    order: dict[str, list[int]] = defaultdict(list)
    lock, running, most = threading.Lock(), set[str](), 0
    turning = threading.Lock()
    left: list[Claim] = []

    def work() -> None:
        nonlocal most
        while True:
            with turning:
                if not left:
                    left.extend(hand.claim(limit=threads, max_payloads=3))
                claim = left.pop() if left else None
            if claim is None:
                if sum(map(len, order.values())) >= expected:
                    return
                rig.wait(["q"], 0.05)
                continue
            with lock:
                assert claim.key not in running
                running.add(claim.key)
                most = max(most, len(running))
                order[claim.key] += [int(body) for body in bodies(claim)]
            with lock:
                running.discard(claim.key)
            with turning:
                assert hand.settle(done(claim)) == []

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    return order, most


@pytest.mark.parametrize(("groups", "count"), [(1, 100), (20, 20)])
def test_groups_run_in_order_though_sqs_delivers_twice_and_out_of_order(
    fake: FakeServer, bench: Bench, groups: int, count: int
) -> None:
    """One group strictly one after another, with 8 threads; twenty beside each other."""
    fake.create_queues("q")
    fake.faults.duplicates, fake.faults.reordered = 0.05, 0.2
    rig = bench.rig(fake, inline=False)
    rig.enqueue([call(f"k{group}", f"{group}-{n}", body=str(n)) for n in range(count) for group in range(groups)])
    order, most = _run(rig, 8, groups * count)
    assert order == {f"k{group}": list(range(count)) for group in range(groups)}
    assert fake.counts("q.fifo") == (0, 0, 0)
    assert most >= 1
