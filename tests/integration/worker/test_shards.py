"""Splitters and schedulers: which shards a process asks for, and in which order."""

from __future__ import annotations

import logging
import threading
import time
from typing import Annotated

import pytest

from laneway import Batch, ConfigError, Key, Laneway, Worker, WorkerOptions, by_node, lag, seq
from laneway.broker import Answer, Turn
from laneway.brokers.sqlite import MemoryBroker
from laneway.clock import ManualClock
from laneway.jobs.data import Claim, Kind, NewJob, Payload
from laneway.jobs.shards import shard_of
from laneway.testing.faulty_broker import FaultyBroker
from laneway.worker.fetch.shards import ShardAssignment, default_splitter, splitter_from_environment
from tests.support.node_checks import (
    check_a_busy_node_does_not_keep_a_worker,
    check_others_jobs_do_not_keep_a_worker,
    check_what_runs_keeps_those_who_serve_its_shard,
)
from tests.support.worker_fixtures import PATIENCE_S, Running, stats

KEYS = [str(number) for number in range(40)]


def share(splitter=default_splitter, scheduler=lag, *, count: int = 5, app: Laneway | None = None) -> ShardAssignment:
    made = ShardAssignment(app or Laneway("memory:"), "q", splitter, scheduler)
    made.declared(count)
    made.update_shards(Answer([], epoch=1, shards=count))
    return made


def asked(of: ShardAssignment, units: int = 3) -> Turn:
    turn = Turn("w", "q", 1)
    of.ask(turn, units)
    return turn


def test_by_default_any_shard_will_do_in_any_epoch():
    turn = asked(share())
    assert (turn.limit, turn.shards, turn.epoch, turn.in_order, turn.batch) == (3, None, 0, False, 1)


@pytest.mark.parametrize(("node", "shards"), [(0, [0, 2, 4]), (1, [1, 3])])
def test_by_node_deals_shards_to_nodes(node, shards):
    turn = asked(share(by_node(2, node)))
    assert (turn.shards, turn.epoch, turn.in_order) == (shards, 1, False)


def test_one_node_serves_all():
    assert share(by_node(1, 0)).served is None


def test_more_nodes_than_shards_leave_some_without():
    assert share(by_node(9, 7)).served == []


def test_seq_begins_one_further_each_turn():
    made = share(scheduler=seq, count=3)
    turns = [asked(made) for _ in range(4)]
    assert [turn.shards for turn in turns] == [[1, 2, 0], [2, 0, 1], [0, 1, 2], [1, 2, 0]]
    assert all(turn.in_order for turn in turns)


def test_seq_goes_round_what_the_splitter_gave():
    assert asked(share(by_node(2, 1), seq)).shards == [3, 1]


def late(lags: dict[int, float], count: int = 5) -> tuple[Laneway, ManualClock]:
    """An app whose queue q has, in each of these shards, a job that is so late."""
    clock = ManualClock()
    app = Laneway(broker=FaultyBroker(MemoryBroker(clock=clock)))
    app.broker.declare("q", count)
    for shard, seconds in lags.items():
        key = next(key for key in map(str, range(99)) if shard_of(key, count) == shard)
        app.broker.enqueue([NewJob(queue="q", key=key, body="{}", delay_s=-seconds)])
    return app, clock


def test_a_scheduler_of_ones_own_is_told_how_late_its_shards_are_before_every_turn():
    """Those that are served here and have something due."""
    given = []

    def mine(queue, lags):
        given.append((queue, lags))
        return [max(lags)]

    app, clock = late({0: 3.0, 1: 4.0, 4: 5.0, 2: -10.0})
    made = share(by_node(2, 0), mine, app=app)
    turn = asked(made)
    assert (turn.shards, turn.in_order) == ([4], True)
    clock.advance(11)
    asked(made)
    assert given == [("q", {0: 3.0, 4: 5.0}), ("q", {0: 14.0, 2: 1.0, 4: 16.0})]
    assert app.broker.calls["lags"] == 2


def test_a_scheduler_of_ones_own_is_not_asked_when_nothing_is_due():
    def mine(queue, lags):
        raise AssertionError("there is nothing to choose from")

    turn = asked(share(by_node(2, 0), mine, app=late({1: 3.0})[0]))
    assert (turn.shards, turn.limit) == ([], 3)


def test_a_scheduler_may_name_shards_of_its_own_where_nothing_is_due():
    turn = asked(share(by_node(2, 0), lambda queue, lags: [4, 2, 0], app=late({0: 3.0})[0]))
    assert turn.shards == [4, 2, 0]


@pytest.mark.parametrize("scheduler", [lag, seq])
def test_what_is_built_in_asks_the_broker_nothing(scheduler):
    app, _ = late({0: 3.0})
    asked(share(by_node(2, 0), scheduler, app=app))
    assert app.broker.calls["lags"] == 0


def test_a_broker_that_is_away_is_not_the_schedulers_fault(caplog):
    app, _ = late({0: 3.0})
    made = share(by_node(2, 0), lambda queue, lags: [4], app=app)
    app.broker.away = True
    assert (asked(made).shards, asked(made).in_order) == ([0, 2, 4], False)
    assert not caplog.records


def test_lag_names_the_most_overdue_shard_first():
    assert lag("q", {0: 1.0, 3: 5.0, 2: 0.0, 4: 5.0}) == [3, 4, 0, 2]
    assert lag("q", {}) == []


def test_seq_goes_round_whatever_is_due():
    """Each turn begins behind the shard that the last one began with, for each queue by itself."""
    turns = [{0: 1.0, 2: 1.0, 3: 9.0}] * 4 + [{1: 1.0}, {}, {0: 1.0, 2: 1.0}]
    asked_of = [list(seq("going-round", lags)) for lags in turns]
    assert asked_of == [[0, 2, 3], [2, 3, 0], [3, 0, 2], [0, 2, 3], [1], [], [2, 0]]
    assert seq("another", {0: 1.0, 2: 1.0}) == [0, 2]


@pytest.mark.parametrize("answer", [[7], ["0"], [True], None, 3, ZeroDivisionError()])
def test_a_scheduler_that_fails_is_named_once_and_lag_is_used(answer, caplog):
    def mine(queue, lags):
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = share(by_node(2, 0), mine, app=late({0: 3.0})[0])
    turns = [asked(made) for _ in range(3)]
    assert [(turn.shards, turn.in_order) for turn in turns] == [([0, 2, 4], False)] * 3
    [record] = caplog.records
    assert record.getMessage() == "the scheduler failed for the queue q; its shards are taken by lag"


@pytest.mark.parametrize("answer", [[5], [-1], ["0"], [True]])
def test_a_splitter_that_gives_no_shards_of_the_queue_is_refused_at_the_start(answer):
    with pytest.raises(ConfigError, match="must give shards of the queue q from 0 to 4"):
        share(lambda queue, shards: answer)


def test_nothing_is_claimed_before_the_epoch_is_known():
    made = ShardAssignment(Laneway("memory:"), "q", by_node(2, 0), lag)
    made.declared(5)
    assert asked(made).limit == 0
    assert made.update_shards(Answer([], epoch=4, shards=5)) is False, "the same shards as before"
    assert asked(made).limit == 3
    assert asked(made).epoch == 4


def test_other_shards_are_served_after_a_reshard():
    made = share(by_node(2, 1))
    assert made.update_shards(Answer([], epoch=2, shards=8)) is True
    assert made.served == [1, 3, 5, 7]
    assert asked(made).epoch == 2


def test_a_splitter_that_fails_after_a_reshard_serves_nothing(caplog):
    def mine(queue, shards):
        if shards != 5:
            raise RuntimeError("I know five")
        return [1]

    made = share(mine)
    assert made.update_shards(Answer([], epoch=2, shards=6))
    assert asked(made).shards == []
    assert "the splitter failed" in caplog.text


@pytest.mark.parametrize(
    ("nodes", "node", "sentence"),
    [
        (0, 0, "nodes must be a whole number from 1 on, not 0"),
        (True, 0, "nodes must be a whole number from 1 on, not True"),
        (2, -1, "node must be a whole number from 0 on, not -1"),
        (2, "1", "node must be a whole number from 0 on, not '1'"),
        (2, 2, "2 is not below 2"),
    ],
)
def test_by_node_says_what_is_wrong(nodes, node, sentence):
    with pytest.raises(ConfigError, match=sentence):
        by_node(nodes, node)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"LANEWAY_NODES": "2"}, "LANEWAY_NODES is set and LANEWAY_NODE is not"),
        ({"LANEWAY_NODE": "2"}, "LANEWAY_NODE is set and LANEWAY_NODES is not"),
        ({"LANEWAY_NODES": "two", "LANEWAY_NODE": "0"}, "LANEWAY_NODES must be a whole number, not 'two'"),
        ({"LANEWAY_NODES": "2", "LANEWAY_NODE": "-1"}, "LANEWAY_NODE must be a whole number, not '-1'"),
        ({"LANEWAY_NODES": "2", "LANEWAY_NODE": "2"}, "LANEWAY_NODES=2 and LANEWAY_NODE=2 do not fit together"),
        ({"LANEWAY_NODES": "0", "LANEWAY_NODE": "0"}, "do not fit together"),
    ],
)
def test_the_environment_is_held_to_the_same(environ, sentence, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    app = Laneway("memory:")

    @app.task
    def work() -> None: ...

    with pytest.raises(ConfigError, match=sentence):
        Worker(app).start()


def test_the_environment_makes_a_splitter():
    assert splitter_from_environment({}) is None
    made = splitter_from_environment({"LANEWAY_NODES": "3", "LANEWAY_NODE": "1"})
    assert made is not None
    assert list(made("q", 7)) == [1, 4]


@pytest.mark.parametrize("where", ["app", "options", "environment"])
def test_a_worker_runs_what_lies_in_its_shards_and_says_which(make_app, monkeypatch, where):
    if where == "environment":
        monkeypatch.setenv("LANEWAY_NODES", "2")
        monkeypatch.setenv("LANEWAY_NODE", "1")
    app = make_app(splitter=by_node(2, 1) if where == "app" else None)
    mine = {key for key in KEYS if shard_of(key, 5) % 2 == 1}
    seen, done = set(), threading.Event()

    @app.collect
    def sync(batch: Batch[int]) -> None:
        seen.update(batch)
        if seen >= mine:
            done.set()

    sync.enqueue_many([(key, 1) for key in KEYS])
    with Running(app, splitter=by_node(2, 1) if where == "options" else None):
        assert done.wait(PATIENCE_S)
        [view] = app.broker.inspect.workers()
        assert view.shards == {"sync": [1, 3]}
    assert seen == mine
    assert stats(app, "sync").length == len(KEYS) - len(mine)


def test_a_worker_that_is_left_only_others_jobs_does_not_spin(make_app):
    app = make_app(splitter=by_node(2, 1))
    ran = threading.Event()

    @app.collect
    def sync(batch: Batch[int]) -> None:
        ran.set()

    theirs = next(key for key in KEYS if shard_of(key, 5) % 2 == 0)
    ours = next(key for key in KEYS if shard_of(key, 5) % 2 == 1)
    sync.enqueue(theirs, 1)
    turns, many = [], threading.Event()
    turn = app.broker.turn

    def watched(asked):
        turns.append(time.monotonic())
        if len(turns) == 10:
            many.set()
        return turn(asked)

    app.broker.turn = watched
    with Running(app):
        assert many.wait(PATIENCE_S)
        assert turns[9] - turns[4] > 0.1, "it rests between turns that are in vain, longer each time"
        sync.enqueue(ours, 1)
        assert ran.wait(PATIENCE_S)


@pytest.mark.parametrize("scheduler", [seq, lambda queue, lags: sorted(lags)[:1], lambda queue, lags: seq(queue, lags)])
def test_every_scheduler_gets_all_done(make_app, drain, scheduler):
    app = make_app(scheduler=scheduler)
    seen = []

    @app.collect(batch_size=3, shards=4)
    def sync(batch: Batch[int]) -> None:
        seen.extend(batch)

    sync.enqueue_many([(key, 1) for key in KEYS])
    assert drain(app) == 0
    assert sorted(seen) == sorted(KEYS)


@pytest.mark.parametrize(
    ("choose", "first"), [(lambda queue, lags: lag(queue, lags), 3), (lambda queue, lags: sorted(lags), 0)]
)
def test_a_worker_begins_with_the_shard_that_the_scheduler_names(make_app, drain, choose, first):
    app = make_app(scheduler=choose)
    seen = []

    @app.collect(shards=4)
    def sync(batch: Batch[int]) -> None:
        seen.extend(shard_of(key, 4) for key in batch)

    for key in KEYS:
        sync.using(perform_at=time.time() - (1_000 if shard_of(key, 4) == 3 else 10)).enqueue(key, 1)
    assert drain(app, concurrency=1) == 0
    assert seen[0] == first
    assert len(seen) == len(KEYS)


def test_batches_are_put_together_from_neighbours_of_one_shard():
    app = Laneway("memory:")

    @app.collect(batch_size=2)
    def sync(batch: Batch[int]) -> None: ...

    made = ShardAssignment(app, "sync", default_splitter, lag)
    claims = [
        Claim("sync", n, str(n), 1, 0.0, -1, 1, 0, [Payload("1")], kind=Kind.COLLECTING, shard=shard)
        for n, shard in enumerate((0, 0, 0, 1, 0))
    ]
    assert [[claim.key for claim in unit] for unit in made.units(claims)] == [["0", "1"], ["2"], ["3"], ["4"]]
    assert asked(made, 3).limit == 6
    assert asked(made, 10_000).limit == 100, "no more than may be unsettled"
    assert (asked(made).batch, asked(made).max_payloads) == (2, 1_000)


@pytest.mark.parametrize(
    ("claims", "calls", "typical_s", "most", "limit", "max_payloads"),
    [
        (1, 1, 0.01, 100, 100, 100),  # a key alone may have many of its calls claimed
        (5, 20, 0.01, 5, 10, 20),
        (100, 1, 0.01, 100, 100, 10),
        (100, 1, 0.000_016, 625, 625, 10),  # what runs in 10 ms, if that is more
        (100, 1, 0.000_000_1, 1_000, 1_000, 10),
        (10, 10, 0.000_2, 50, 50, 50),
    ],
)
def test_what_a_crash_would_repeat_is_bounded(claims, calls, typical_s, most, limit, max_payloads):
    """About 100 calls are asked for, and finished without being recorded, however they are spread over keys."""
    made = ShardAssignment(Laneway("memory:"), "q", default_splitter, lag)
    payloads = [Payload("1", 0.0, str(n)) for n in range(calls)]
    made.units([Claim("q", n, str(n), 1, 0.0, -1, 1, 0, payloads, kind=Kind.KEYED) for n in range(claims)])
    assert made.learn(typical_s) == most
    assert (asked(made, 10_000).limit, asked(made).max_payloads) == (limit, max_payloads)


@pytest.mark.parametrize("wanted", [3, 100, 700])
def test_a_number_of_calls_that_a_task_asks_for_is_used_as_said(wanted):
    app = Laneway("memory:")

    @app.task(queue="q", max_payloads=wanted)
    def work(key: Annotated[str, Key]) -> None: ...

    made = ShardAssignment(app, "q", default_splitter, lag)
    made.units([Claim("q", n, str(n), 1, 0.0, -1, 1, 0, [Payload("1")], kind=Kind.KEYED) for n in range(100)])
    made.learn(0.01)
    assert asked(made).max_payloads == wanted


def test_a_shard_count_that_differs_is_named_once(app, caplog, drain):
    app.broker.declare("sync", 7)

    @app.collect(shards=3)
    def sync(batch: Batch[int]) -> None: ...

    with caplog.at_level(logging.WARNING):
        assert drain(app) == 0
    lines = [record.getMessage() for record in caplog.records if "shards" in record.getMessage()]
    assert lines == [
        "the queue sync has 7 shards, and the code says shards=3; what is stored counts: change it with "
        "`laneway reshard sync 3`, or the code"
    ]


def test_options_that_are_no_functions_are_refused():
    with pytest.raises(ConfigError, match="scheduler must be a function, not 'seq'"):
        Worker(Laneway("memory:"), WorkerOptions(scheduler="seq"))


def test_a_process_that_serves_nothing_says_so(make_app, drain, caplog):
    app = make_app(splitter=by_node(9, 8))

    @app.task
    def work() -> None: ...

    with caplog.at_level(logging.WARNING):
        assert drain(app) == 0
    assert [record.getMessage() for record in caplog.records] == [
        "none of the 5 shards of the queue default is this process's to serve; look at its splitter, or at "
        "LANEWAY_NODES and LANEWAY_NODE"
    ]


def test_a_worker_ends_though_something_is_due_for_another_node(app):
    check_others_jobs_do_not_keep_a_worker(app)


def test_a_worker_does_not_end_while_a_job_of_its_shards_runs(app):
    check_what_runs_keeps_those_who_serve_its_shard(app)


def test_a_paused_queue_does_not_keep_the_worker_of_a_node(app, drain):
    @app.task
    def work(key: Annotated[str, Key]) -> None: ...

    work.enqueue_many([(key,) for key in KEYS])
    app.broker.operate.pause("default")
    assert drain(app, splitter=by_node(2, 1)) == 0
    assert stats(app).length == len(KEYS)


def test_a_worker_without_shards_ends(app, drain):
    @app.task
    def work(key: Annotated[str, Key]) -> None: ...

    work.enqueue_many([(key,) for key in KEYS])
    assert drain(app, splitter=by_node(9, 7)) == 0
    assert stats(app).length == len(KEYS)


def test_a_worker_ends_though_another_node_is_busy(app):
    check_a_busy_node_does_not_keep_a_worker(app)
