"""The page about testing is true: its code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.property

PAGE = Path(__file__).parent.parent.parent / "docs" / "testing.md"


def test_the_code_on_the_page_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for number, block in enumerate(blocks):
        exec(compile(block, f"testing.md block {number + 1}", "exec"), {"__name__": "page"})
