"""Shop: a folder with an app, where `python -m laneway` runs as a user would run it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from laneway import Laneway
from laneway.urls import URL_VARIABLES

#: Stands in the arguments of every job; it must not come out anywhere unless `--body` asks for it.
CANARY = "canary-4711"

APP = """
from laneway import Laneway

app = Laneway(name="shop")

@app.task
def resize(path: str) -> None:
    pass

@app.task(queue="mail", max_retry_count=0)
def send(to: str) -> None:
    raise ValueError("the server said no\\nand gave no reason")

@app.task(max_retry_count=3)
def flaky(to: str) -> None:
    raise OSError("not now")
"""


class Shop:
    """A folder to run commands in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "laneway.db"
        self.write("shop.py", APP)
        self.environ = {name: value for name, value in os.environ.items() if name not in (*URL_VARIABLES, "NO_COLOR")}
        self._started: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-W", "error", "-m", "laneway", *args]

    def start(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": self.environ, **options}
        process = subprocess.Popen(self.command(*args), cwd=self.folder, text=True, **options)
        self._started.append(process)
        return process

    def python(self, program: str) -> None:
        """Run a program of the user's own to its end."""
        subprocess.run([sys.executable, "-c", program], cwd=self.folder, env=self.environ, check=True, timeout=60)

    def end(self) -> None:
        """End what a test that failed has left running, so that no other test fails of it."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def serving(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Start a worker, and wait until it takes jobs."""
        process = self.start(*args, **options)
        assert process.stderr is not None
        for line in process.stderr:
            if " INFO    worker " in line and " started: " in line:
                return process
        raise AssertionError(f"The worker ended with {process.wait()} before it took jobs.")

    def run(self, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Whatever it is, it never shows an argument, nor a traceback."""
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            env=self.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        if "--body" not in args:
            assert CANARY not in done.stdout + done.stderr
        return done

    def ok(self, *args: str, **environ: str) -> str:
        done = self.run(*args, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *args: str, **environ: str) -> Any:
        return msgspec.json.decode(self.ok(*args, "--json", **environ))

    def wrong(self, *args: str, code: int = 2, **environ: str) -> str:
        """Run a command that must be refused, and return the one sentence that it says."""
        done = self.run(*args, **environ)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert done.stdout == ""
        sentence = done.stderr.strip()
        assert "\n" not in sentence
        assert sentence.endswith(".")
        return sentence

    def app(self) -> Laneway:
        """The same app in this process, to put jobs in and look at what became of them."""
        app = Laneway(f"sqlite:///{self.database}", name="shop")
        space: dict[str, Any] = {"app": app}
        exec(APP.replace('app = Laneway(name="shop")', ""), space)
        return app

    def put(self, task: str, count: int = 1, **options: Any) -> list[str]:
        """Enqueue jobs and return their keys."""
        app = self.app()
        found = app.registry.find(task)
        assert found is not None
        handles = found.using(**options).enqueue_many([(f"{CANARY}-{number}",) for number in range(count)])
        app.close()
        return [handle.id for handle in handles]

    def kill_jobs(self, count: int = 1) -> list[str]:
        """Have a worker bury jobs, and return their keys."""
        keys = self.put("send", count)
        self.ok("worker", "shop", "--until-empty", "-Q", "mail")
        return keys

    def status(self, queue: str, key: str) -> str:
        app = self.app()
        status = app.broker.status(queue, key)
        app.close()
        return status


def answer(shop: Shop, reply: str, *args: str) -> tuple[int, str]:
    """Run a command at a terminal, answer its question, and return its exit code and what it said."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        shop.command(*args), cwd=shop.folder, env=shop.environ, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 1024)
    os.write(ours, f"{reply}\n".encode())
    while True:
        try:
            said += os.read(ours, 1024)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    return process.wait(timeout=30), said.decode()
