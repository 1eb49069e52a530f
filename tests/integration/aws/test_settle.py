"""Tests of settling on SQS: the effect on the messages, and that no job is lost whichever response is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from laneway.brokers.aws.sqs.message import ATTRIBUTE
from laneway.errors import BrokerAwayError, BrokerError, EnqueueError
from laneway.jobs.data import Claim, Kind
from laneway.jobs.settlement import Settlement, buried, died, done, failed, postponed, released
from laneway.testing.conformance.fixtures import ScriptedWorker, bodies, call, calls, job, keys, put
from tests.support.aws.endpoints import Place
from tests.support.aws.turn_bench import Bench, Lost, Rig, bench, sentences, virtual_server

__all__ = ["bench", "virtual_server"]


def notes(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What travels beside the tickets."""
    return [json.loads(message["MessageAttributes"][ATTRIBUTE]["StringValue"]) for message in messages]


def holds(hand: ScriptedWorker, count: int) -> list[Claim]:
    claims = hand.claim()
    assert len(claims) == count
    return claims


# -- each verdict --------------------------------------------------------------------------------------


def test_a_failed_job_is_sent_anew_with_what_is_known_of_it(aws: Place, bench: Bench) -> None:
    """Its error, its counts, its headers and foreign attributes; the old message is deleted."""
    aws.create_queues("q")
    rig = bench.rig(aws)
    put(rig, "a", body='{"n":1}', headers={"h": "1"})  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(failed(hand.one(), "ValueError: no", 25, 0.0))
    assert aws.counts("q") == (1, 0, 0)
    again = hand.one()
    assert (again.key, again.attempt, again.retry_count, again.error) == ("a", 2, 0, "ValueError: no")
    assert (bodies(again), again.headers) == (['{"n":1}'], {"h": "1"})
    hand.settle(failed(again, "worse", 25, 60.0))
    assert aws.counts("q") == (0, 0, 1)
    assert rig.counts == [("q", 0, 1), ("q", 0, 1)]


def test_a_copy_that_comes_before_the_old_message_is_gone_is_run_at_once(bench: Bench) -> None:
    """Another receive may bring it while the settlement is under way: it must not stay hidden until the lease ends."""
    rig, server, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand, other = rig.hand(), rig.hand("worker-2")
    claim = hand.one()
    met: list[list[Claim]] = []

    def watch(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "send_message_batch" and answer is not None:
            met.append(other.claim())

    with rig.watched(watch):
        hand.settle(failed(claim, "no", 25, 0.0))
    assert met == [[]]
    again = hand.one()
    assert (again.key, again.attempt) == ("a", 2)
    hand.settle(done(again))
    assert server.counts("q") == (0, 0, 0)


def test_a_retry_comes_at_its_time(bench: Bench) -> None:
    """By DelaySeconds up to 900 s, beyond that from hop to hop: never early, and with all that is known of it."""
    rig, _, clock = bench.virtual()
    put(rig, "short", "long", body='{"_job_class":"T","_job_params":null}')  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    hand.settle(failed(claims["short"], "no", 25, 600.5), failed(claims["long"], "no", 25, 2_000.0))
    due = clock.now() + 2_000
    clock.advance(600)
    assert hand.claim() == []
    clock.advance(1)
    assert keys(hand.claim()) == ["short"]
    while clock.now() < due - 1:
        clock.advance(min(300.0, due - 1 - clock.now()))
        assert hand.claim() == []
    clock.advance(2)
    claim = hand.one()
    assert (claim.key, claim.attempt, claim.retry_count, claim.error) == ("long", 2, 0, "no")
    assert hand.settle(done(claim)) == []


def test_a_ticket_of_hops_is_sent_on_whole(bench: Bench) -> None:
    """With its original time and its own keys, new first; foreign attributes go along."""
    rig, server, clock = bench.virtual()
    at = int(clock.now()) + 3_000
    body = f'{{"_job_class":"T","_job_params":null,"other":[1],"_execute_after":{at}}}'
    rig.clients.sqs(
        "send_message",
        QueueUrl=server.queue_url("q"),
        MessageBody=body,
        MessageAttributes={"theirs": {"DataType": "String", "StringValue": "x"}},
    )
    hand = rig.hand()
    hops = 0
    while clock.now() < at - 1:
        assert hand.claim() == []
        assert server.counts("q") == (0, 0, 1)
        (message,) = server.queues["q"].messages
        assert message.body == body
        hops += 1
        clock.advance(min(900.0, at - 1 - clock.now()))
    clock.advance(1)
    claim = hand.one()
    assert (bodies(claim), claim.attempt) == ([body], 1)
    assert hops == 4


def test_a_buried_job_lies_in_the_dead_letter_queue(aws: Place, bench: Bench) -> None:
    aws.create_queues("q")
    rig = bench.rig(aws)
    put(rig, "a", body='{"n":1}')  # type: ignore[arg-type]
    calls(rig, "k", "1", "2", "3")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    assert hand.settle(buried(claims["a"], "no"), buried(claims["k"], "never", done=1)) == []
    assert (aws.counts("q"), aws.counts("q-deadletter")) == ((0, 0, 0), (1, 0, 0))
    (letter,) = aws.receive_all("q-deadletter")
    (note,) = notes([letter])
    assert letter["Body"] == '{"n":1}'
    assert (note["id"], note["error"], note["retry_count"], note["attempt"]) == ("a", "no", 0, 1)
    assert note["buried_at"] == pytest.approx(rig.clock.now(), abs=60)
    (note,) = notes(aws.receive_all("q-deadletter.fifo"))
    assert (note["id"], note["key"], note["error"]) == ("2", "k", "never")
    assert [bodies(claim) for claim in hand.claim()] == [["3"]]


def test_a_job_without_a_dead_letter_queue_stays(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """It is told once how to make one, and the job is tried again later; it was not buried, so nobody says so."""
    rig, server, clock = bench.virtual()
    for name in ("lone", "lone.fifo"):
        server.create_queue(name)
    rig.enqueue([job("a", queue="lone"), call("k", "1", queue="lone"), call("k", "2", queue="lone")])
    hand = rig.hand()
    for _ in range(2):
        claims = {claim.key: claim for claim in hand.claim(queue="lone")}
        assert sorted(claims) == ["a", "k"]
        answer = hand.turn(0, *(buried(claim, "no") for claim in claims.values()), queue="lone")
        assert (answer.refused, sorted(answer.stayed)) == ([], ["a", "k"])
        assert sorted(hand.again().stayed) == ["a", "k"]
        assert hand.claim(queue="lone") == []
        clock.advance(901)
    assert len(told := [text for text in sentences(caplog) if "laneway aws create" in text]) == 2
    assert "lone.fifo" in told[0] + told[1]
    assert rig.counts == [("lone", 0, 2)] * 2
    claims = {claim.key: claim for claim in hand.claim(queue="lone")}
    assert sum(len(claim.payloads) for claim in claims.values()) == 3
    assert (claims["a"].error, claims["k"].error) == ("no", "no")


def test_a_postponed_job_is_hidden_and_comes_back_uncounted(bench: Bench) -> None:
    """Nothing is sent and nothing deleted; that it was started is not forgotten."""
    rig, server, clock = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(postponed(hand.one(), 30.0))
    assert server.counts("q") == (0, 1, 0)
    clock.advance(29)
    assert hand.claim() == []
    clock.advance(2)
    again = hand.one()
    assert (again.attempt, again.retry_count, again.error) == (2, -1, None)
    assert rig.counts == []


def test_a_job_that_is_postponed_for_days_is_sent_anew(bench: Bench) -> None:
    """SQS hides a message for 12 hours at most."""
    rig, server, clock = bench.virtual()
    put(rig, "a", body='{"_job_class":"T","_job_params":null}')  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(postponed(hand.one(), 86_400.0))
    assert server.counts("q") == (0, 0, 1)
    due = clock.now() + 86_400
    while clock.now() < due - 1:
        clock.advance(min(900.0, due - 1 - clock.now()))
        assert hand.claim() == []
    clock.advance(2)
    assert (again := hand.one()).attempt == 2
    assert (again.retry_count, rig.counts) == (-1, [])


def test_giving_back_does_not_count_as_an_attempt(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    for _ in range(3):
        hand.settle(released(hand.one()))
    assert hand.one().attempt == 1


def test_deaths_are_counted(bench: Bench) -> None:
    """Of a job that is given to nobody else meanwhile: they are known to this process, or in the table."""
    rig, server, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    calls(rig, "k", "1", "2")  # type: ignore[arg-type]
    hand = rig.hand()
    for deaths in range(2):
        claims = {claim.key: claim for claim in hand.claim()}
        assert claims["a"].deaths == deaths
        assert [payload.deaths for payload in claims["k"].payloads] == [deaths, 0]
        hand.settle(*(died(claim, "was killed") for claim in claims.values()))
    claims = {claim.key: claim for claim in hand.claim()}
    hand.settle(*(died(claim, "was killed") for claim in claims.values()))
    (plain,), (keyed,) = notes(server.receive_all("q-deadletter")), notes(server.receive_all("q-deadletter.fifo"))
    assert (plain["deaths"], keyed["deaths"], keyed["id"]) == (3, 3, "1")


def test_a_job_that_is_received_again_and_again_is_suspect(bench: Bench) -> None:
    """Nobody counts deaths without a table: after ten receives it runs alone."""
    rig, server, clock = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    deaths = []
    for _ in range(10):
        deaths.append(bench.rig(server, clock).hand().one().deaths)
        clock.advance(31)  # as if its process had died
    assert deaths == [0] * 9 + [2]


def test_an_error_is_cut_so_that_its_message_fits(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    put(rig, "a", "b", body="x" * 261_000)  # type: ignore[arg-type]
    hand = rig.hand()
    first, second = holds(hand, 2)
    text = "half \udcff and much more: " + "é" * 400_000 + " the end"
    assert hand.settle(failed(first, text, 25, 0.0), buried(second, text)) == []
    (again,) = hand.claim()
    assert again.error is not None
    assert again.error.endswith(" the end")
    assert notes(server.receive_all("q-deadletter"))[0]["error"].endswith(" the end")


def test_a_delay_that_is_no_number_does_not_keep_a_run_from_being_settled(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    put(rig, "a", "b", body='{"_job_class":"T","_job_params":null}')  # type: ignore[arg-type]
    calls(rig, "k", "1")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    inf, nan = float("inf"), float("nan")
    settlements = [failed(claims["a"], "no", 25, nan), failed(claims["b"], "no", 25, inf)]
    assert hand.settle(*settlements, failed(claims["k"], "no", 25, inf)) == []
    # The keyed one cannot be sent anew, and SQS would not keep it so long.
    assert (server.counts("q"), server.counts("q.fifo")) == ((1, 0, 1), (0, 0, 0))
    assert server.counts("q-deadletter.fifo") == (1, 0, 0)


# -- what a run enqueued -------------------------------------------------------------------------------


def test_what_runs_enqueued_is_sent_with_any_verdict(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    server.create_queues("new")
    put(rig, *"abcde")  # type: ignore[arg-type]
    hand = rig.hand()
    first, second, third, fourth, fifth = holds(hand, 5)
    settlements = [
        failed(first, "no", 25, 60.0),
        postponed(second, 60.0),
        buried(third, "no"),
        released(fourth),
        done(fifth),
    ]
    for settlement in settlements:
        settlement.outbox = [job(f"child of {settlement.claim.key}", queue="new")]
    hand.settle(*settlements)
    assert sorted(keys(hand.claim(queue="new"))) == sorted(f"child of {each.claim.key}" for each in settlements)


def test_an_outbox_that_is_refused_is_told_before_anything_is_settled(bench: Bench) -> None:
    """Its run is to blame, and buried with the next turn; the others' jobs are not sent twice."""
    rig, server, _ = bench.virtual()
    server.create_queues("new")
    put(rig, "good", "bad")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    good = done(claims["good"], [job("child", queue="new")])
    with pytest.raises(EnqueueError) as caught:
        hand.turn(0, good, done(claims["bad"], [job("large", "x" * 300_000, queue="new")]))
    assert caught.value.place == ("new", "large")
    assert server.counts("q") == (0, 2, 0)
    assert hand.settle(good, buried(claims["bad"], "What the run enqueued was refused.")) == []
    assert keys(hand.claim(queue="new")) == ["child"]
    assert (server.counts("q"), server.counts("q-deadletter")) == ((0, 0, 0), (1, 0, 0))


def test_what_is_known_to_be_sent_is_not_sent_again(bench: Bench) -> None:
    """The second of three requests is lost before it gets there; the repeat of the turn sends what is left."""
    rig, server, _ = bench.virtual()
    server.create_queue("new")
    put(rig, "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    first, second = holds(hand, 2)
    children = [job(f"child{n}", queue="new") for n in range(25)]
    with rig.watched(Lost(2, after=False, operations=["send_message_batch"])), pytest.raises(BrokerAwayError):
        hand.turn(0, done(first, children[:13]), done(second, children[13:]))
    assert (server.counts("new"), server.counts("q")) == ((10, 0, 0), (0, 2, 0))
    assert hand.again().refused == []
    assert (server.counts("new"), server.counts("q")) == ((25, 0, 0), (0, 0, 0))


def test_a_run_that_enqueues_for_a_queue_that_is_missing_is_to_blame(bench: Bench) -> None:
    """It fails like one whose job is refused; the other runs of its queue do not wait for somebody to make that one."""
    rig, server, _ = bench.virtual()
    put(rig, "good", "bad")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    with pytest.raises(EnqueueError, match="laneway aws create") as caught:
        hand.turn(0, done(claims["good"], [job("child")]), done(claims["bad"], [job("lost", queue="nowhere")]))
    assert caught.value.place == ("nowhere", "lost")
    assert hand.settle(done(claims["good"], [job("child")]), buried(claims["bad"], "no")) == []
    assert keys(hand.claim()) == ["child"]
    assert server.counts("q-deadletter") == (1, 0, 0)


# -- lost answers --------------------------------------------------------------------------------------


def _story(rig: Rig) -> tuple[ScriptedWorker, list[Settlement]]:
    """A turn in which everything is settled that can be: 12 jobs are done, so that there are several batches."""
    put(rig, *(f"done{n}" for n in range(12)), "retry", "bury", "postpone", "release")  # type: ignore[arg-type]
    calls(rig, "kdone", "1", "2")  # type: ignore[arg-type]
    calls(rig, "kretry", "3", "4", "5")  # type: ignore[arg-type]
    calls(rig, "kbury", "6", "7")  # type: ignore[arg-type]
    calls(rig, "krelease", "8", "9")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    assert len(claims) == 20
    return hand, [
        *(done(claims[f"done{n}"], [job(f"child{n}", queue="new")]) for n in range(12)),
        failed(claims["retry"], "no", 25, 10.0),
        buried(claims["bury"], "no"),
        postponed(claims["postpone"], 10.0),
        released(claims["release"]),
        done(claims["kdone"]),
        failed(claims["kretry"], "no", 25, 10.0, done=1),
        buried(claims["kbury"], "no"),
        released(claims["krelease"]),
    ]


@pytest.mark.parametrize("after", [False, True])
def test_whichever_call_is_lost_nothing_is_and_nothing_is_done_twice(bench: Bench, after: bool) -> None:
    """Each in turn, before it was carried out and after: the repeat of the turn goes on where it stopped."""
    number, finished = 0, False
    while not finished:
        number += 1
        rig, server, clock = bench.virtual()
        server.create_queue("new")
        hand, settlements = _story(rig)
        lost = Lost(number, after=after)
        with rig.watched(lost):
            try:
                answer = hand.turn(0, *settlements)
                finished = not lost.lost
            except BrokerAwayError:
                answer = hand.again()
        assert answer.refused == [], lost.lost
        assert rig.counts == [("q", 14, 4)]
        clock.advance(10)
        claims = hand.claim()
        got = {claim.key: bodies(claim) for claim in claims}
        plain = {"retry": ["{}"], "postpone": ["{}"], "release": ["{}"]}
        assert got == {**plain, "kretry": ["4", "5"], "kbury": ["7"], "krelease": ["8", "9"]}, lost.lost
        assert [claim.attempt for claim in sorted(claims, key=lambda claim: claim.key)] == [1, 1, 2, 2, 1, 2]
        assert sorted(keys(hand.claim(queue="new"))) == sorted(f"child{n}" for n in range(12))
        dead = [*notes(server.receive_all("q-deadletter")), *notes(server.receive_all("q-deadletter.fifo"))]
        # A lost answer to a send may leave two of one message, under the same id, where SQS does not see that.
        assert sorted({note["id"] for note in dead}) == ["6", "bury"]
        hand.settle(*(done(claim) for claim in claims))
        rig.close()
    assert number > 8  # there were as many calls


def test_a_process_that_dies_between_two_calls_loses_nothing(bench: Bench) -> None:
    """Another one finds all that is not done, though some may be there twice: under the same id."""
    number, finished = 0, False
    while not finished:
        number += 1
        rig, server, clock = bench.virtual()
        server.create_queue("new")
        hand, settlements = _story(rig)
        lost = Lost(number, after=True)
        with rig.watched(lost):
            try:
                hand.turn(0, *settlements)
                finished = not lost.lost
            except BrokerAwayError:
                pass
        clock.advance(31)
        other = bench.rig(server, clock).hand("worker-2")
        claims = other.claim()
        left = {claim.key for claim in claims}
        calls_left = {payload.identity for claim in claims for payload in claim.payloads}
        letters = [*server.receive_all("q-deadletter"), *server.receive_all("q-deadletter.fifo")]
        dead = {note["id"] for note in notes(letters)}
        children = set(keys(other.claim(queue="new")))
        for n in range(12):
            assert f"done{n}" in left or f"child{n}" in children, lost.lost
        assert {"retry", "postpone", "release"} <= left, lost.lost
        assert {"bury", "6"} <= left | calls_left | dead, lost.lost
        assert {"4", "5", "7", "8", "9"} <= calls_left, lost.lost
        rig.close()


def test_entries_that_aws_could_not_carry_out_are_tried_again_alone(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    put(rig, *"abcdef")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = holds(hand, 6)
    asked: list[int] = []

    def some_fail(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "delete_message_batch" and answer is None:
            asked.append(len(params["Entries"]))
            if len(asked) == 1:
                params["Entries"].pop()  # so that it is not done; below it is told so
        elif operation == "delete_message_batch" and answer is not None and len(asked) == 1:
            failure = {"Id": "5", "Code": "InternalError", "SenderFault": False, "Message": "try again"}
            answer.setdefault("Failed", []).append(failure)

    with rig.watched(some_fail):
        assert hand.settle(*(done(claim) for claim in claims)) == []
    assert asked == [6, 1]
    assert server.counts("q") == (0, 0, 0)


def test_entries_that_aws_never_carries_out_are_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.brokers.aws.sqs.visibility.PAUSES_S", (0.0, 0.0))
    rig, _, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()

    def fails(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "delete_message_batch" and answer is not None:
            answer.clear()
            answer["Failed"] = [{"Id": "0", "Code": "InternalError", "SenderFault": False}]

    with rig.watched(fails), pytest.raises(BrokerAwayError, match=r"could not delete messages of q: a\."):
        hand.turn(0, done(claim))
    assert hand.again().refused == []


def test_a_message_that_is_gone_already_is_done(bench: Bench) -> None:
    """Whoever deleted it; on a standard queue that is no fault."""
    rig, server, _ = bench.virtual()
    put(rig, "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = holds(hand, 2)
    rig.clients.sqs("purge_queue", QueueUrl=server.queue_url("q"))
    assert hand.settle(*(done(claim) for claim in claims)) == []


def test_a_table_keeps_what_is_known_of_a_keyed_call(bench: Bench) -> None:
    """So that another process knows it too; when the call is done, it is forgotten."""
    rig, server, clock = bench.virtual(table="t")
    server.create_table("t")
    calls(rig, "k", "1", "2")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(failed(hand.one(), "no", 5, 10.0))
    rig.turns.leave(hand.name)
    other = bench.rig(server, clock, table="t").hand("worker-2")
    clock.advance(11)
    claim = other.one()
    assert (claim.retry_count, claim.attempt, claim.error) == (0, 2, "no")
    assert [payload.attempt for payload in claim.payloads] == [2, 1]
    other.settle(done(claim))
    assert [item for item in server.items("t") if item["scheduler"]["S"] == "laneway-state"] == []


def test_a_death_that_the_table_counts_travels_on_and_counts_once(bench: Bench) -> None:
    rig, server, clock = bench.virtual(table="t")
    server.create_table("t")
    put(rig, "a")  # type: ignore[arg-type]
    rig.hand().one()
    table = rig.account.tables.of("q")
    assert table is not None
    table.retry_states.add_death("a", "w")
    clock.advance(31)
    hand = bench.rig(server, clock, table="t").hand()
    claim = hand.one()
    assert (claim.deaths, claim.attempt) == (1, 1)
    hand.settle(failed(claim, "no", 25, 0.0))
    for _ in range(2):
        claim = bench.rig(server, clock, table="t").hand().one()
        assert (claim.deaths, claim.attempt, claim.kind) == (1, 2, Kind.PLAIN)
        clock.advance(31)


def test_a_table_that_is_away_keeps_back_only_what_needs_it(bench: Bench) -> None:
    rig, server, _ = bench.virtual(table="t")
    server.create_table("t")
    put(rig, "old")  # type: ignore[arg-type]
    hand = rig.hand()
    hand.settle(released(hand.one()))
    put(rig, "fresh")  # type: ignore[arg-type]
    call_table = rig.clients.dynamodb

    def away(operation: str, **params: Any) -> dict[str, Any]:
        raise BrokerAwayError("The table is away.")

    rig.clients.dynamodb = away  # type: ignore[method-assign]
    with pytest.raises(BrokerError, match="table is away"):
        hand.claim()
    rig.clients.dynamodb = call_table  # type: ignore[method-assign]
    assert sorted(keys(hand.claim())) == ["fresh", "old"]
