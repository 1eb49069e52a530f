"""Isolated processes: their runs are settled like any other, and no process or descriptor is left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from laneway import ConfigError, Laneway, Worker, WorkerOptions
from laneway.telemetry import RunEnded, RunStarted
from laneway.worker.isolation import pool
from tests.integration.worker.isolated_app import children, is_there, isolated_app, wait_for
from tests.integration.worker.isolated_tasks import (
    alone,
    forks,
    gather,
    gather_and_send,
    here,
    hoards,
    keyed,
    keyed_here,
    leaves_a_thread,
    note,
    noted,
    sends,
    surrounded,
    waits,
    where,
    where_async,
)
from tests.support.worker_fixtures import PATIENCE_S, Running, dead, stats


@pytest.fixture
def app(tmp_path, monkeypatch):
    with isolated_app(tmp_path, monkeypatch) as app:
        yield app


def pids() -> list[int]:
    return [int(line.split()[-1]) for line in noted() if line.startswith(("ran", "began"))]


def began() -> list[int]:
    return [int(line.split()[-1]) for line in noted() if line.startswith("began")]


# -- which process -------------------------------------------------------------------------------------


def test_a_process_is_used_again_and_replaced_after_so_many_runs(app, drain):
    where.enqueue_many([(number,) for number in range(6)])
    assert drain(app, concurrency=1, isolated_jobs=2) == 0
    first, _, second, _, third, _ = pids()
    assert pids() == [first, first, second, second, third, third]
    assert len({first, second, third, os.getpid()}) == 4
    assert not children()


def test_a_fresh_one_runs_once(app, drain):
    alone.enqueue_many([(number,) for number in range(4)])
    assert drain(app, concurrency=2) == 0
    assert len(set(pids())) == 4
    assert not children()


def test_there_are_at_most_as_many_as_jobs_at_once(app, drain):
    where.enqueue_many([(number,) for number in range(30)])
    assert drain(app, concurrency=3) == 0
    assert len(pids()) == 30
    assert len(set(pids())) <= 3


def test_an_async_task_runs_there_too_and_the_others_run_here(app, drain):
    where_async.enqueue(1)
    here.enqueue(2)
    assert drain(app, concurrency=1) == 0
    [apart] = pids()
    assert apart != os.getpid()
    assert f"here 2 {os.getpid()}" in noted()


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is told by /proc alone")
def test_one_that_has_grown_is_replaced(app, drain):
    hoards.enqueue_many([()] * 2)
    assert drain(app, concurrency=1, max_memory=100 * 1_048_576) == 0
    assert len(set(pids())) == 2


def test_one_that_does_not_end_by_itself_is_ended(app, drain, monkeypatch):
    monkeypatch.setattr(pool, "END_S", 0.1)
    monkeypatch.setattr(pool, "CLOSE_S", 0.1)
    leaves_a_thread.enqueue_many([()] * 2)
    assert drain(app, concurrency=1, isolated_jobs=1) == 0
    assert len(set(pids())) == 2
    assert not any(map(is_there, pids()))


def test_those_that_idle_are_ended(app, monkeypatch):
    monkeypatch.setattr(pool, "IDLE_S", 0.05)
    with Running(app, concurrency=2):
        where.enqueue(1)
        alone.enqueue(2)
        wait_for(lambda: len(pids()) == 2)
        wait_for(lambda: not children())
        where.enqueue(3)
        wait_for(lambda: len(pids()) == 3)


def test_the_only_one_that_idles_is_ended(app, monkeypatch):
    """Nothing but its own time wakes the pool."""
    monkeypatch.setattr(pool, "IDLE_S", 0.05)
    with Running(app, concurrency=2):
        where.enqueue(1)
        wait_for(lambda: len(pids()) == 1)
        wait_for(lambda: not children())


def test_descriptors_stay_constant(app, drain):
    def open_ones() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    with Running(app, concurrency=2, isolated_jobs=3):
        where.enqueue_many([(number,) for number in range(10)])
        wait_for(lambda: len(pids()) == 10)
        before = open_ones()
        where.enqueue_many([(number,) for number in range(60)])
        alone.enqueue_many([(number,) for number in range(5)])
        wait_for(lambda: len(pids()) == 75)
        # At any time there may be one more process at work, idle or ending for each runner.
        wait_for(lambda: open_ones() <= before + 4)


# -- as if it were here --------------------------------------------------------------------------------


@pytest.mark.parametrize(("ending", "sent"), [("", 1), ("raises", 0), ("dies", 0)])
def test_what_a_run_enqueues_is_sent_if_and_only_if_it_succeeds(app, drain, ending, sent):
    sends.enqueue(ending)
    if ending == "dies":
        with Running(app, concurrency=1):
            wait_for(lambda: dead(app))
    else:
        assert drain(app) == 0
    assert len([line for line in noted() if line.startswith("here 1")]) == sent
    assert len(dead(app)) == (0 if sent else 1)


def test_an_error_is_kept_as_it_was_raised_there(app, drain):
    sends.enqueue("raises")
    assert drain(app) == 0
    [job] = dead(app)
    first, *places = job.error.splitlines()
    assert first == "ValueError: no ? good"
    assert "isolated_tasks.py" in places[0]


def test_events_are_told_here_once(app, drain):
    told = []
    for kind in (RunStarted, RunEnded):
        app.telemetry.subscribe(kind, told.append)
    where.enqueue(1)
    sends.enqueue("raises")
    assert drain(app, concurrency=1) == 0
    for kind in (RunStarted, RunEnded):
        app.telemetry.unsubscribe(kind, told.append)
    assert [(type(event).__name__, event.task, event.run) for event in told] == [
        (kind, task, told[2 * number].run)
        for number, task in enumerate(["where", "sends"])
        for kind in ("RunStarted", "RunEnded")
    ]
    assert [(event.verdict, event.error) for event in told[1::2]] == [("done", None), ("bury", "ValueError: no ? good")]


def test_middleware_and_error_handlers_run_there_and_once(app, drain, monkeypatch):
    monkeypatch.setenv("LANEWAY_TEST_SEES", "1")
    surrounded.enqueue()
    sends.enqueue("raises")
    assert drain(app, concurrency=1) == 0
    [read] = [int(line.split()[1]) for line in noted() if line.startswith("reading")]
    assert read == pids()[0]
    assert noted().count("middleware saw ValueError") == 1
    [told] = [line for line in noted() if line.startswith("handler saw ValueError")]
    assert int(told.split()[-1]) == read


def test_lines_of_its_log_are_in_the_workers(app, drain, caplog):
    caplog.set_level(logging.INFO, "laneway")
    handle = sends.enqueue("")
    assert drain(app) == 0
    [record] = [each for each in caplog.records if "a line of" in each.getMessage()]
    assert record.getMessage() == f"[sends {handle.id}] a line of "
    assert (record.task, record.job) == ("sends", handle.id)


def test_a_ticket_that_cannot_be_read_fails_as_ever(app, drain):
    app.enqueue_body('{"_job_class":"where","_job_params":{"number":"x"}}')
    app.enqueue_body("nonsense")
    assert drain(app) == 0
    assert (stats(app).retries, stats(app).dead) == (1, 1)


# -- keys and batches ----------------------------------------------------------------------------------


def test_calls_of_a_key_stay_in_order_there_and_here(app, drain):
    for number in range(10):
        (keyed if number % 2 else keyed_here).enqueue("a", number)
    assert drain(app) == 0
    assert [int(line.split()[2]) for line in noted()] == list(range(10))
    assert stats(app).length == 0


def test_a_call_that_fails_there_stays_the_head_and_what_was_done_is_not_repeated(app, drain):
    keyed.enqueue("a", 1)
    keyed.enqueue("a", 2, "fails once")
    keyed.enqueue("a", 3)
    assert drain(app) == 0
    assert noted() == ["ran a 1", "ran a 2"]
    [job] = app.broker.inspect.find("default", "a")
    assert (job.size, job.retry_count) == (2, 0)
    app.broker.operate.run_now("default", ["a"])
    assert drain(app) == 0
    assert noted() == ["ran a 1", "ran a 2", "ran a 2", "ran a 3"]


def test_a_batch_is_run_there_and_a_key_may_fail_alone(app, drain):
    gather.enqueue_many([("a", 1), ("b", 2), ("fails", 3)])
    assert drain(app) == 0
    [line] = noted()
    assert line.split()[2:] == ["a", "b", "fails"]
    [job] = dead(app, "gather")
    assert (job.key, job.error) == ("fails", "it says so")
    assert stats(app, "gather").processed == 2


def test_what_a_batch_enqueues_is_sent_once(app, drain):
    gather_and_send.enqueue_many([(str(number), number) for number in range(6)])
    assert drain(app) == 0
    assert [line.split()[1] for line in noted()] == ["3", "3"]


# -- its ends ------------------------------------------------------------------------------------------


def test_stopping_waits_for_what_runs_there(app):
    waits.enqueue(1)
    with Running(app) as worker:
        wait_for(pids)
        assert worker.app.broker.inspect.stats()[0].busy == 1
        note("go on")
    assert "ended 1" in noted()
    assert stats(app).processed == 1
    assert not children()


def test_giving_up_ends_what_runs_there_and_gives_it_back(app, drain):
    waits.enqueue(1)
    handle = keyed.enqueue("a", 1)
    waits.using(key="a").enqueue(2)
    worker = Worker(app, WorkerOptions(lease_s=600))
    worker.start()
    wait_for(lambda: len(began()) == 2)
    assert not worker.stop(0)
    assert not any(map(is_there, began()))
    assert handle.status() == "gone", "the call that had succeeded is settled"
    jobs = app.broker.inspect.listing("default", "queued").jobs
    assert [(job.status, job.retry_count) for job in jobs] == [("queued", -1)] * 2
    assert not app.broker.inspect.workers()
    note("go on")
    assert drain(app) == 0
    assert {"ended 1", "ended 2"} <= set(noted())


def test_a_worker_can_be_started_again(app):
    worker = Worker(app, WorkerOptions())
    for number in range(2):
        where.enqueue(number)
        worker.start()
        wait_for(lambda number=number: len(pids()) > number)
        assert worker.stop(PATIENCE_S)
    assert not children()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_that_stop_workers_do_not_end_a_run_there(app, number):
    waits.enqueue(1)
    with Running(app):
        wait_for(pids)
        os.killpg(pids()[0], number)
        note("go on")
        wait_for(lambda: stats(app).processed)
    assert "ended 1" in noted()


def test_stacks_are_shown_of_what_runs_there_too(app, caplog):
    waits.enqueue(1)
    with Running(app) as worker:
        wait_for(pids)
        worker._show_stacks()
        wait_for(lambda: f"isolated process {pids()[0]}" in caplog.text)
        note("go on")
    assert "isolated_tasks.py" in caplog.text


def test_a_process_that_has_left_a_fork_of_itself_is_seen_to_be_dead(app):
    forks.enqueue()
    with Running(app, concurrency=1):
        wait_for(lambda: len(pids()) > 1)
    assert len(set(pids())) > 1


def test_it_ends_when_its_worker_is_killed(app, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        from laneway import Worker
        from tests.integration.worker.isolated_tasks import app

        if __name__ == "__main__":
            app.use({app.full_url!r})
            Worker(app).run()
        """)
    )
    waits.enqueue(1)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(program)], env=environ) as worker:
        try:
            wait_for(pids)
            assert is_there(pids()[0])
        finally:
            worker.kill()
    wait_for(lambda: not is_there(pids()[0]))


# -- what cannot be ------------------------------------------------------------------------------------


def test_an_app_that_no_module_has_is_refused_with_the_task_named(tmp_path):
    hidden = Laneway(f"sqlite:///{tmp_path / 'jobs.db'}")

    @hidden.task(isolation="fresh")
    def resize() -> None: ...

    with pytest.raises(ConfigError, match=r"Task resize runs in another process.*no module has it as a global"):
        Worker(hidden).start()
    hidden.close()


def test_jobs_in_memory_run_in_the_worker_which_warns_once(app, caplog):
    app.use("memory:")
    with Running(app, concurrency=2):
        where.enqueue(1)
        where.enqueue(2)
        wait_for(lambda: len(pids()) == 2)
    assert set(pids()) == {os.getpid()}
    warnings = [record.getMessage() for record in caplog.records if "does not enforce" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith(
        "the jobs of memory: are inside this process, so the worker does not enforce isolation"
    )
    assert "where" in warnings[0]


def test_a_process_that_cannot_start_gives_its_jobs_back_and_is_not_tried_on_and_on(app, monkeypatch, caplog):
    worker = Worker(app, WorkerOptions(concurrency=1))
    worker.start()
    monkeypatch.setenv("LANEWAY_TEST_FAILS_TO_START", "1")
    handle = where.enqueue(1)
    where.using(delay=0.2).enqueue(2)
    wait_for(lambda: stats(app).delayed == 2)
    assert handle.status() == "delayed"
    [job, _] = app.broker.inspect.listing("default", "queued").jobs
    assert job.retry_count == -1
    assert [record.getMessage() for record in caplog.records if "cannot be had" in record.getMessage()] == [
        "an isolated process cannot be had: RuntimeError: there is no bank to talk to; its jobs are given back, and it "
        "is tried again in 1 s"
    ]
    monkeypatch.delenv("LANEWAY_TEST_FAILS_TO_START")
    wait_for(lambda: len(pids()) == 2)
    assert worker.stop()


def test_a_program_that_starts_its_worker_when_it_is_imported_is_told_so(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(f"""
        import threading
        from laneway import Laneway, Worker

        app = Laneway("sqlite:///{tmp_path / "jobs.db"}")

        @app.task(isolation="process")
        def where() -> None: ...

        where.using(key="a").enqueue()
        worker = Worker(app)
        worker.start()
        import logging
        told = threading.Event()
        class Handler(logging.Handler):
            def emit(self, record):
                if "cannot be had" in record.getMessage():
                    print(record.getMessage())
                    told.set()
        logging.getLogger("laneway").addHandler(Handler())
        told.wait(60)
        worker.stop()
        """)
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "put that behind if __name__ == '__main__'" in done.stdout, done.stderr


def test_a_password_is_not_among_the_arguments(app):
    app.use(f"{app.full_url}?timeout=5")
    waits.enqueue(1)
    with Running(app):
        wait_for(pids)
        assert "sqlite" not in Path(f"/proc/{pids()[0]}/cmdline").read_text()
        note("go on")
