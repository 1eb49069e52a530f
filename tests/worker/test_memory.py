"""A worker that has run many jobs holds no more than one that has run a few."""

from __future__ import annotations

from tests.worker.memory import samples


def test_twenty_thousand_jobs_leave_nothing_behind() -> None:
    seen = samples("plain", jobs=20_000, warm_up=20_000, backlog=25_000)
    assert seen[-1].descriptors == seen[0].descriptors
    # A kibibyte kept of each job would be 60 %.
    assert seen[-1].rss_kib < seen[0].rss_kib * 1.2
