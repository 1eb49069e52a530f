"""Memory and descriptors through 200,000 jobs in one process.

`make test` runs some thousands of two kinds, to check that the measurement works and that no descriptor stays open.
`make chaos` runs them all, and memory may then grow by less than 5 %.
"""

from __future__ import annotations

import os

import pytest

from tests.support.memory_use import samples

pytestmark = pytest.mark.chaos

LARGE = bool(os.environ.get("LANEWAY_CHAOS"))
KINDS = ("plain", "async", "keyed", "collecting", "failing", "producer") if LARGE else ("keyed", "failing")


def check(kind: str, *, backlog: int) -> None:
    jobs, warm_up = (200_000, 20_000) if LARGE else (2_000, 1_000)
    seen = samples(kind, jobs=jobs, warm_up=warm_up, backlog=backlog)
    print(kind, seen[0], seen[-1])
    assert seen[-1].descriptors == seen[0].descriptors
    assert max(each.threads for each in seen) <= 15
    if LARGE:
        assert seen[-1].rss_kib < seen[0].rss_kib * 1.05


@pytest.mark.parametrize("kind", KINDS)
def test_many_jobs_leave_nothing_behind(kind: str) -> None:
    check(kind, backlog=5_000)


def test_a_long_backlog_is_not_kept_in_memory() -> None:
    check("plain", backlog=250_000 if LARGE else 20_000)
