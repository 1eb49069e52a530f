"""Runs two jobs on the dict broker, in one process: one is delayed, and one fails once and is retried.

python program.py
"""

from __future__ import annotations

import time

from laneway import Context, Laneway, Worker

app = Laneway("dict:")


@app.task
def greet(name: str) -> None:
    print(f"Hello, {name}!", flush=True)


@app.task(context=True, retry_in=lambda retry_count: 0.5)
def fetch(context: Context, page: str) -> None:
    if context.attempt == 1:
        print(f"{page} fails", flush=True)
        raise ConnectionError("the line is busy")
    print(f"{page} arrives with attempt {context.attempt}", flush=True)


def main() -> None:
    handles = [greet.using(delay=1).enqueue("world"), fetch.enqueue("index.html")]
    print("enqueued:", *(handle.status() for handle in handles), flush=True)
    worker = Worker(app)
    worker.start()
    while any(handle.status() not in ("gone", "dead") for handle in handles):
        time.sleep(0.05)
    worker.stop()
    print("in the end:", *(handle.status() for handle in handles), flush=True)
    app.close()


if __name__ == "__main__":
    main()
