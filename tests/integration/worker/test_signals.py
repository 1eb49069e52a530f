"""Real worker processes and real signals: graceful stop, giving up, and kills."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from laneway import Laneway, Worker

PROGRAM = Path(__file__).parent / "programs" / "history.py"
PATIENCE_S = 60


class Programs:
    """Starts worker processes on one SQLite file and reads the history that they leave."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "jobs.db"
        self.url = f"sqlite:///{self.database}"
        self.history = folder / "history"
        self.history.touch()
        self._started: list[subprocess.Popen[str]] = []
        self.app = Laneway(self.url)

        @self.app.task(context=True)
        def work(context, number: int, takes_s: float = 0.0) -> None: ...

        @self.app.task(context=True)
        def parent(context, number: int, children: int) -> None: ...

        @self.app.task(context=True)
        def stuck(context) -> None: ...

        self.work, self.parent, self.stuck = work, parent, stuck

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, PROGRAM, *arguments],
            env={**os.environ, "LANEWAY_URL": self.url, "HISTORY": str(self.history), **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def run_until_empty(self) -> None:
        process = self.start("--until-empty")
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.history.read_text().splitlines()]

    def wait_for(self, count: int, mark: str = "S") -> None:
        """Until so many runs have started (S) or ended (E), by whichever process."""
        with subprocess.Popen(["tail", "-n", "+1", "-f", self.history], stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            for line in tail.stdout:
                count -= line.startswith(mark)
                if count == 0:
                    tail.terminate()

    def ended(self) -> Counter[str]:
        return Counter(line[1] for line in self.lines() if line[0] == "E")

    def close(self) -> None:
        self.app.close()
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(tmp_path)
    yield programs
    programs.close()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_a_signal_finishes_what_runs_and_gives_back_the_rest(programs, name):
    programs.work.enqueue_many([(number, 0.2) for number in range(12)])
    process = programs.start()
    programs.wait_for(4)
    process.send_signal(getattr(signal, name))
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    started = [line[1] for line in programs.lines() if line[0] == "S"]
    assert programs.ended() == Counter(started), "whatever was started has ended"
    [stats] = programs.app.broker.inspect.stats()
    assert (stats.busy, stats.length) == (0, 12 - len(started))
    assert {job.attempt for job in programs.app.broker.inspect.listing("default", "queued").jobs} <= {0}
    programs.run_until_empty()
    assert programs.ended() == Counter(str(number) for number in range(12))


def test_what_does_not_finish_in_time_is_left_to_others(programs):
    programs.stuck.enqueue()
    process = programs.start(SHUTDOWN_TIMEOUT="0.1")
    programs.wait_for(1)
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "1 jobs unfinished" in errors
    second = programs.start()
    programs.wait_for(2)
    assert programs.lines()[-1] == ["S", "stuck", "2"]
    second.kill()


def test_a_second_interrupt_gives_up_at_once(programs):
    programs.stuck.enqueue()
    process = programs.start()
    programs.wait_for(1)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "waiting for stuck" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1


def test_killed_in_the_middle_of_jobs_every_job_is_done(programs):
    programs.work.enqueue_many([(number, 0.005) for number in range(300)])
    for kills in range(1, 4):
        process = programs.start()
        programs.wait_for(60 * kills)
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    programs.run_until_empty()
    ended = programs.ended()
    assert ended.keys() == {str(number) for number in range(300)}, "none is lost"
    [stats] = programs.app.broker.inspect.stats()
    assert (stats.length, stats.busy, stats.dead) == (0, 0, 0)


def test_killed_between_a_run_and_its_settlement_all_children_come_once_each(programs):
    """The parents spawn many jobs; wherever the kill falls, each settled parent has sent all of them, once."""
    programs.parent.enqueue_many([(number, 20) for number in range(1, 41)])
    for kills in range(1, 4):
        process = programs.start()
        programs.wait_for(100 * kills, mark="E")
        process.kill()
        process.communicate(timeout=PATIENCE_S)
    programs.run_until_empty()
    children = {str(number * 1000 + child) for number in range(1, 41) for child in range(20)}
    assert programs.ended().keys() - {f"parent-{number}" for number in range(1, 41)} == children
    [stats] = programs.app.broker.inspect.stats()
    assert stats.processed == 40 + len(children), "each parent and each child was settled once"


def test_several_workers_share_the_work_and_run_each_job_once(programs):
    programs.work.enqueue_many([(number, 0.002) for number in range(400)])
    processes = [programs.start("--until-empty") for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
    assert programs.ended() == Counter(str(number) for number in range(400))


@pytest.mark.parametrize("name", ["SIGUSR2", "SIGTTIN"])
def test_the_stacks_of_all_threads_can_be_asked_for(programs, name):
    programs.stuck.enqueue()
    process = programs.start(SHUTDOWN_TIMEOUT="0")
    programs.wait_for(1)
    process.send_signal(getattr(signal, name))
    assert process.stderr is not None
    while "in stuck" not in process.stderr.readline():
        pass
    assert process.poll() is None, "it goes on"
    process.terminate()


def test_a_worker_can_be_started_again_after_it_was_stopped(tmp_path):
    app = Laneway(f"sqlite:///{tmp_path / 'jobs.db'}")
    ran = threading.Semaphore(0)

    @app.task
    def ping() -> None:
        ran.release()

    worker = Worker(app)
    for _ in range(2):
        worker.start()
        ping.enqueue()
        assert ran.acquire(timeout=PATIENCE_S)
        assert worker.stop()
    assert app.broker.inspect.workers() == []
    app.close()


def test_told_to_stop_while_the_broker_is_away_it_admits_what_is_unsettled(programs):
    """Exit code 1, because a finished run could not be recorded: it will run again elsewhere."""
    programs.work.enqueue(1, 0.3)
    process = programs.start(SHUTDOWN_TIMEOUT="0.2", LANEWAY_URL=f"{programs.url}?timeout=0.1")
    programs.wait_for(1)
    lock = sqlite3.connect(programs.database, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    programs.wait_for(1, mark="E")
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE_S)
    lock.close()
    assert process.returncode == 1
    assert "1 jobs unfinished" in errors
    programs.run_until_empty()
    assert programs.ended() == Counter({"1": 2})
