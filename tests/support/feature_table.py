"""The table of features in docs/brokers.md, made from the capabilities of the brokers.

python -m tests.support.feature_table    writes it into the page
"""

from __future__ import annotations

from pathlib import Path

from laneway.broker import FEATURES, Capabilities
from laneway.brokers.aws.settings import AWSSettings
from laneway.brokers.aws.unsupported import capabilities
from laneway.brokers.redis.settings import CAPABILITIES
from laneway.brokers.sqlite import MemoryBroker, SQLiteBroker

PAGE = Path(__file__).parents[2] / "docs" / "brokers.md"
_BEGIN, _END = "<!-- features: make feature-table -->\n", "<!-- end of features -->"

BROKERS: dict[str, Capabilities] = {
    "memory": MemoryBroker.capabilities,
    "SQLite": SQLiteBroker.capabilities,
    "Redis": CAPABILITIES,
    "SQS": capabilities(AWSSettings()),
}


def feature_table() -> str:
    """The rows, and below them why a broker lacks what it lacks."""
    lines = [["feature", *BROKERS], ["---"] * (1 + len(BROKERS))]
    lines += [
        [words, *("yes" if can.has(feature) else "no" for can in BROKERS.values())]
        for feature, words in FEATURES.items()
    ]
    conditional = dict.fromkeys(what for can in BROKERS.values() for what in can.conditions)
    lines += [[what, *(can.conditions.get(what, "yes") for can in BROKERS.values())] for what in conditional]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    reasons = "".join(
        f"- {name}, {FEATURES[feature].partition(':')[0]}: {reason}\n"
        for name, can in BROKERS.items()
        for feature, reason in can.lacks.items()
    )
    return f"{table}\nWhat is behind a no:\n\n{reasons}"


def split_page() -> tuple[str, str, str]:
    """The page before the table, the table as the page has it, and the page behind it."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    table, end, behind = rest.partition(_END)
    return before + begin, table, end + behind


def main() -> None:
    before, _, behind = split_page()
    PAGE.write_text(before + feature_table() + behind, encoding="utf-8")


if __name__ == "__main__":
    main()
