"""The model follows the merge rules: examples written by hand, rule by rule."""

from __future__ import annotations

import pytest

from laneway.errors import EnqueueError
from laneway.jobs.data import Claim, Debounce, Kind, NewJob
from laneway.jobs.merge import HEAD
from laneway.jobs.settlement import Settlement, buried, done, failed, postponed, released
from tests.support import model, model_operate, model_settle
from tests.support.model import KeyState

pytestmark = pytest.mark.property

NOW = 1_000.0


def call(state: KeyState, name: str, at: float = NOW, now: float = NOW) -> KeyState:
    new = NewJob(queue="q", key="k", body="{}", kind=Kind.KEYED, identity=name, perform_at=at)
    calls.append(name)
    return model.enqueue(state, new, now, len(calls))


calls: list[str] = []


def value(state: KeyState, name: str, score: float | None = None, now: float = NOW, **more: object) -> KeyState:
    new = NewJob(queue="q", key="k", body=name, kind=Kind.COLLECTING, identity=name, score=score, **more)  # type: ignore[arg-type]  # the fields of NewJob
    return model.enqueue(state, new, now, 0)


def claimed(state: KeyState, now: float = NOW, most: int | None = None) -> KeyState:
    assert model.is_due(state, now)
    return model.claim(state, "worker", 1, now, most)


def settled(state: KeyState, how: object, now: float = NOW, **more: object) -> KeyState:
    row = state.row
    assert row is not None
    claim = Claim("q", 1, "k", 1, row.perform_at, row.retry_count, 1, 0, [e.payload(row.kind) for e in state.running])
    claim.kind = row.kind
    settlement = how(claim, **more)  # type: ignore[operator]  # one of the functions of laneway.jobs.settlement
    assert isinstance(settlement, Settlement)
    after = model_settle.settle(state, settlement, now)
    assert model.flaws(after) == []
    return after


def fails(claim: Claim, **more: int) -> Settlement:
    return failed(claim, "boom", 2, 60.0, **more)


def names(entries: model.Entries) -> list[str]:
    return [entry.identity for entry in entries]


def scores(state: KeyState) -> dict[str, float]:
    return {entry.identity: entry.score for entry in state.queued}


def test_the_worked_example_of_merging() -> None:
    state = value(value(KeyState(), "v1", 1.0), "v2", 2.0)
    state = settled(claimed(state), fails)
    assert scores(value(value(state, "v2", 3.0), "v3", 4.0)) == {"v1": 1.0, "v2": 2.0, "v3": 4.0}


def test_what_comes_while_the_key_runs_is_set_aside_and_follows() -> None:
    state = value(claimed(value(KeyState(), "a")), "a", now=NOW + 5)
    assert (names(state.running), names(state.queued)) == (["a"], ["a"])
    state = settled(state, done, NOW + 6)
    assert state.row is not None
    assert (names(state.queued), state.row.perform_at, state.row.retry_count) == (["a"], NOW + 5, -1)


def test_a_failure_unites_with_what_came_meanwhile() -> None:
    state = value(claimed(value(value(KeyState(), "a", 5.0), "b", 6.0)), "a", 1.0)
    state = settled(state, fails)
    assert scores(state) == {"a": 1.0, "b": 6.0}
    assert state.row is not None
    assert (state.row.perform_at, state.row.retry_count) == (NOW + 60, 0)


def test_a_failed_call_stays_at_the_head_and_the_key_rests() -> None:
    state = settled(claimed(call(call(KeyState(), "a"), "b")), fails, done=0)
    state = call(state, "early", NOW - 100)
    assert names(state.queued) == ["a", "early", "b"]
    assert [entry.attempt for entry in state.queued] == [1, 0, 0]
    assert state.row is not None
    assert (state.row.perform_at, state.queued[0].score) == (NOW + 60, HEAD)
    assert names(claimed(state, NOW + 60).running) == ["a", "early", "b"]


def test_calls_done_before_a_failure_are_gone_and_the_count_begins_anew() -> None:
    state = settled(claimed(call(call(KeyState(), "a"), "b")), fails, done=1)
    assert names(state.queued) == ["b"]
    assert state.row is not None
    assert state.row.retry_count == 0


def test_a_call_due_later_holds_nobody_back() -> None:
    state = claimed(call(call(KeyState(), "later", NOW + 500), "now"))
    assert (names(state.running), names(state.queued)) == (["now"], ["later"])
    state = settled(state, done)
    assert state.row is not None
    assert state.row.perform_at == NOW + 500


def test_rest_ends_when_what_it_was_for_is_cancelled() -> None:
    state = call(settled(claimed(call(KeyState(), "a")), fails), "b", NOW + 5)
    after = model_operate.cancel(state, "a")
    assert after is not None
    assert after.row is not None
    assert (after.row.perform_at, after.row.retry_count, after.row.error) == (NOW + 5, -1, None)


def test_resting_a_key_never_makes_it_due_before_its_calls() -> None:
    state = model_operate.reschedule(call(KeyState(), "a"), None, NOW + 50)
    assert state is not None
    state = model_operate.cancel(call(state, "later", NOW + 500), "a")
    assert state is not None
    assert state.row is not None
    assert state.row.perform_at == NOW + 500
    state = call(state, "sooner", NOW + 100)
    assert state.row is not None
    assert state.row.perform_at == NOW + 100


def test_the_smallest_score_is_buried_and_the_rest_goes_on() -> None:
    state = claimed(value(value(KeyState(), "a", 2.0), "b", 1.0))
    state = settled(state, lambda claim: failed(claim, "boom", 0, 0.0), NOW + 1)
    assert state.dead is not None
    assert state.row is not None
    assert (names(state.dead.entries), names(state.queued)) == (["b"], ["a"])
    assert (state.row.perform_at, state.row.retry_count) == (NOW + 1, -1)


def test_asking_for_the_morgue_buries_all_of_a_collecting_job_and_one_call_of_a_keyed_one() -> None:
    state = settled(claimed(value(value(KeyState(), "a"), "b")), lambda claim: buried(claim, "no"))
    assert (state.row, names(state.dead.entries if state.dead else ())) == (None, ["a", "b"])
    state = settled(claimed(call(call(KeyState(), "a"), "b")), lambda claim: buried(claim, "no"))
    assert (names(state.queued), names(state.dead.entries if state.dead else ())) == (["b"], ["a"])


def test_reviving_unites_and_is_due_now() -> None:
    state = settled(claimed(value(KeyState(), "a", 2.0)), lambda claim: buried(claim, "no"))
    state = value(state, "a", 7.0, perform_at=NOW + 900)
    after = model_operate.revive(state, NOW + 3)
    assert after is not None
    assert after.row is not None
    assert (scores(after), after.row.perform_at, after.dead) == ({"a": 2.0}, NOW + 3, None)


def test_a_claim_taken_back_is_as_it_was_but_counted() -> None:
    before = call(KeyState(), "a")
    state = claimed(before)
    assert model_settle.forget(state) == before
    given_back = model_settle.give_back(state)
    assert given_back.row is not None
    assert (given_back.row.attempt, given_back.queued[0].attempt) == (1, 1)
    assert settled(state, released) == before


def test_a_postponed_call_keeps_its_count_and_its_place() -> None:
    state = settled(claimed(call(call(KeyState(), "a"), "b")), lambda claim: postponed(claim, 30.0))
    assert state.row is not None
    assert (state.row.retry_count, state.row.perform_at, names(state.queued)) == (-1, NOW + 30, ["a", "b"])


def test_quiet_begins_anew_with_every_payload_up_to_its_limits() -> None:
    quiet = Debounce(grace_s=10.0, max_wait_s=15.0, max_size=3)
    state = value(KeyState(), "a", quiet=quiet)
    state = value(state, "b", now=NOW + 9, quiet=quiet)
    assert state.row is not None
    assert state.row.perform_at == NOW + 15
    state = value(state, "c", now=NOW + 9, quiet=quiet)
    assert state.row is not None
    assert state.row.perform_at == NOW + 9


def test_scores_without_one_grow_within_one_tick() -> None:
    state = value(value(value(KeyState(), "c"), "b"), "a")
    assert names(state.queued) == ["c", "b", "a"]


def test_a_key_belongs_to_one_kind() -> None:
    with pytest.raises(EnqueueError):
        value(call(KeyState(), "a"), "b")
