"""SettlementReport: how a worker counts the reply to a turn, and which hooks it calls."""

from __future__ import annotations

from laneway.jobs.data import Claim, Payload
from laneway.jobs.settlement import Settlement, buried
from laneway.telemetry import SettlementRefused
from laneway.worker.run.report import SettlementReport


def test_a_job_that_the_broker_could_not_bury_has_failed_and_is_not_told_as_buried(make_app):
    """Its claim was not lost either: nobody else has taken it over."""
    app = make_app()
    refusals: list[SettlementRefused] = []
    app.telemetry.subscribe(SettlementRefused, refusals.append)
    told: list[Settlement] = []
    settled = SettlementReport(app, "q", told.extend, lambda: None)
    claims = [Claim("q", n, key, 1, 0.0, -1, 1, 0, [Payload("{}")]) for n, key in enumerate(("stays", "goes"))]
    settled.take_in([buried(claim, "no") for claim in claims], [], ["stays"])
    assert [each.claim.key for each in told] == ["goes"]
    assert (settled.processed, settled.failed, refusals) == (0, 2, [])
