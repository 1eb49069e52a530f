"""sqlite: and sqlite3: URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.errors import ConfigError
from laneway.urls import Url, open_broker

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///laneway.db", "laneway.db"),
        ("sqlite3:///laneway.db", "laneway.db"),
        ("sqlite:///some/folder/a b.db", "some/folder/a b.db"),
        ("sqlite:////var/lib/laneway.db", "/var/lib/laneway.db"),
        ("sqlite3:////var/lib/laneway.db?synchronous=full&timeout=2.5", "/var/lib/laneway.db"),
        ("sqlite:laneway.db", "laneway.db"),
    ],
)
def test_the_path_of_a_url(url: str, path: str) -> None:
    broker = open_broker(url)
    assert isinstance(broker, SQLiteBroker)
    assert broker._db.path == Path(path)


def test_making_a_broker_touches_nothing(tmp_path: Path) -> None:
    open_broker(f"sqlite:///{tmp_path}/jobs.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sqlite:", "needs a path"),
        ("sqlite://", "needs a path"),
        ("sqlite:///", "needs a path"),
        ("sqlite:///:memory:", "use memory:"),
        ("sqlite:///a.db?journal=off", "no option 'journal'; it knows synchronous, timeout"),
        ("sqlite:///a.db?synchronous=off", "synchronous must be normal or full, not 'off'"),
        ("sqlite:///a.db?timeout=soon", "timeout must be seconds, not 'soon'"),
        ("sqlite:///a.db?timeout=-1", "timeout must be 0 to 3600 seconds"),
        ("sqlite:///a.db?timeout=nan", "timeout must be 0 to 3600 seconds"),
        ("sqlite:///a.db?timeout=inf", "timeout must be 0 to 3600 seconds"),
    ],
)
def test_a_url_that_is_wrong_is_answered_in_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")):
        SQLiteBroker.from_url(Url.parse(url))
