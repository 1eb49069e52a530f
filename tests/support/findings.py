"""What checks have found, as sentences."""

from __future__ import annotations

from laneway.app import Laneway
from laneway.broker import Broker


def check_texts(broker: Broker, app: Laneway | None = None) -> list[str]:
    """The sentences of a broker's own check."""
    return [finding.text for finding in broker.health.check(app)]
