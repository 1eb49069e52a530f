"""Isolated tasks and time limits on the command line."""

from __future__ import annotations

import pytest

from tests.support.shop import Shop

pytestmark = pytest.mark.acceptance

APP = """
import os
import time
from laneway import Context, Laneway

app = Laneway()

@app.task(isolation="process", context=True)
def apart(context: Context) -> None:
    context.logger.warning("said by %d", os.getpid())
    print("printed", flush=True)

@app.task(time_limit=0.2, max_retry_count=0)
def slow() -> None:
    time.sleep(600)

@app.task(isolation="fresh", max_retry_count=0)
def crash() -> None:
    os.abort()

if {put}:
    for task in (apart, slow, crash):
        task.enqueue()
"""


@pytest.mark.parametrize("target", ["leaky", "sub/leaky.py", "leaky:app"])
def test_what_happens_elsewhere_is_in_the_log_and_in_the_morgue(shop: Shop, target: str) -> None:
    folder = "sub/" if target.startswith("sub") else ""
    shop.write(f"{folder}leaky.py", APP.format(put='"PUT" in os.environ'))
    shop.ok("check", target, PUT="1")
    done = shop.run("worker", target, "--until-empty", "-v")
    assert done.returncode == 0
    assert "] said by " in done.stderr
    assert done.stdout == "printed\n"
    assert "TimeLimitError: Its time is up: the task's time_limit is 0.2 s." in done.stderr
    assert done.stderr.count("was killed by SIGABRT (signal 6)") == 3
    errors = [job["error"] for job in shop.json("morgue")["jobs"]]
    assert sorted(error.partition(".")[0].partition(";")[0] for error in errors) == [
        "The process that ran it died 3 times",
        "TimeLimitError: Its time is up: the task's time_limit is 0",
    ]


def test_the_url_of_the_command_line_holds_there_too(shop: Shop) -> None:
    shop.write(
        "sending.py",
        """
        from laneway import Laneway
        app = Laneway("sqlite:///wrong.db")

        @app.task(isolation="process")
        def first() -> None:
            second.enqueue()

        @app.task
        def second() -> None:
            print("second", flush=True)

        @app.task
        def begin() -> None:
            first.enqueue()
        """.replace("\n        ", "\n"),
    )
    shop.write("begin.py", "from sending import app, begin\napp.use('sqlite:///right.db')\nbegin.enqueue()\n")
    shop.ok("check", "begin:app")
    assert shop.ok("worker", "sending", "--url", "sqlite:///right.db", "--until-empty") == "second\n"
    assert not (shop.folder / "wrong.db").exists()


def test_in_memory_isolated_tasks_run_in_the_worker_which_warns_once(shop: Shop) -> None:
    shop.write(
        "trial.py",
        """
        import os
        import time
        from laneway import Laneway
        app = Laneway("memory:")

        @app.task(isolation="process")
        def apart(number: int) -> None:
            print(number, os.getpid(), flush=True)

        @app.task(time_limit=0.01)
        def slow() -> None:
            time.sleep(0.1)
            print("slow", os.getpid(), flush=True)

        for number in range(3):
            apart.enqueue(number)
        slow.enqueue()
        """.replace("\n        ", "\n"),
    )
    worker = shop.start("worker", "trial", "--until-empty", "-c", "1")
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 0, err
    assert sorted(out.splitlines()) == [*(f"{each} {worker.pid}" for each in range(3)), f"slow {worker.pid}"]
    [warning] = [line for line in err.splitlines() if " WARNING " in line]
    assert warning.endswith(
        "the jobs of memory: are inside this process, so the worker does not enforce isolation and the time limits of "
        "sync tasks: apart, slow run in its threads; to enforce them, use another broker, such as sqlite:///laneway.db"
    )
