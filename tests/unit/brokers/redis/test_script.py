"""Tests of loading the Lua scripts from files, with the parts that they include."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from laneway.brokers import redis
from laneway.brokers.redis.script import load, read
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisServer

pytestmark = pytest.mark.unit

SHIPPED = sorted(path.stem for path in (Path(redis.__file__).parent / "scripts").glob("*.lua"))


def test_a_part_is_put_in_where_it_is_first_named(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "verb.lua").write_text("-- head\n--@include one\n--@include two\n--@include one\nreturn one()\n")
    (tmp_path / "parts" / "one.lua").write_text("--@include two\nlocal function one() return two() end\n")
    (tmp_path / "parts" / "two.lua").write_text("local function two() return 2 end\n")
    script = read(tmp_path, "verb")
    assert [line for line in script.text.splitlines() if line] == [
        "-- head",
        "local function two() return 2 end",
        "local function one() return two() end",
        "return one()",
    ]


def test_parts_that_name_each_other_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "verb.lua").write_text("--@include one\n")
    (tmp_path / "parts" / "one.lua").write_text("--@include two\n-- one\n")
    (tmp_path / "parts" / "two.lua").write_text("--@include one\n-- two\n")
    assert read(tmp_path, "verb").text.split() == ["--", "two", "--", "one"]


def test_a_part_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "verb.lua").write_text("--@include nothing\n")
    with pytest.raises(FileNotFoundError):
        read(tmp_path, "verb")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_script_is_known_by_the_name_that_redis_gives_it(
    name: str, redis_server: RedisServer, open_url: Opener
) -> None:
    script = load(name)
    assert script is load(name)
    assert not re.search(r"^\s*--\s*@include", script.text, re.MULTILINE)
    assert open_url(redis_server.url).do("SCRIPT", "LOAD", script.text) == script.sha.encode()
