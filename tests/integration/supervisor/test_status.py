"""The status that a supervisor serves over HTTP while its children start, end and are replaced."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request

import pytest

from tests.support.worker_processes import Server, Site, kill, wait_until

pytestmark = pytest.mark.acceptance


def port_of(server: Server) -> int:
    """The port that it has chosen."""
    wait_until(lambda: "serving /" in server.log(), server.log)
    found = re.search(r"serving /.* on 127\.0\.0\.1:(\d+)", server.log())
    assert found is not None
    return int(found[1])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def counted(port: int, name: str) -> float:
    """The sum of a metric over all its labels."""
    _, text = get(port, "/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[ {{]", line))


def test_probes_follow_what_happens(site: Site) -> None:
    server = site.start("--health-port", "0", "--lease", "120", "--shutdown-timeout", "300", IMPORT_S="1")
    port = port_of(server)
    assert get(port, "/live")[0] == 200
    assert get(port, "/ready") == (503, '{"status":"no","reason":"no process is serving"}\n')
    wait_until(lambda: get(port, "/ready")[0] == 200, server.log)
    site.put("stuck")
    site.wait_for(1)
    server.signal("SIGTERM")
    wait_until(lambda: get(port, "/ready") == (503, '{"status":"no","reason":"it is stopping"}\n'), server.log)
    assert get(port, "/live")[0] == 200
    server.process.kill()


def test_what_was_counted_outlives_the_process_that_did(site: Site) -> None:
    site.put("work", 30)
    server = site.start("--metrics-port", "0", "-w", "2").serving(2)
    port = port_of(server)
    wait_until(lambda: counted(port, "laneway_jobs_total") == 30, server.log)
    for child in server.children():
        kill(child, signal.SIGKILL)
    server.serving(4)
    site.put("work", 5)
    wait_until(lambda: counted(port, "laneway_jobs_total") == 35, server.log)
    assert counted(port, "laneway_processes_ended_total") == 2
    assert counted(port, "laneway_broker_up") == 1
    assert server.stop() == 0


def test_a_port_that_is_taken_is_one_sentence_before_anything_runs(site: Site) -> None:
    first = site.start("--health-port", "0").serving()
    second = site.start("--health-port", str(port_of(first)))
    assert second.ends() == 2
    assert "cannot be served" in second.log()
    assert "Traceback" not in second.log()
    assert "process 1 started" not in second.log()
    assert first.stop() == 0
