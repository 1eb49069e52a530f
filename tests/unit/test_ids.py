"""Ids are unique and increasing, also across threads and forks; keys always hash to the same shard."""

from __future__ import annotations

import os
import re
import threading
import time

import pytest

from laneway.ids import Ids, id_source, made_at, new_id
from laneway.jobs.shards import shard_of

pytestmark = pytest.mark.unit


def test_an_id_is_32_hexadecimal_digits_beginning_with_the_time():
    before = time.time_ns() // 1_000_000
    made = new_id()
    assert re.fullmatch(r"[0-9a-f]{32}", made)
    assert before <= int(made[:12], 16) <= time.time_ns() // 1_000_000 + 1_000


def test_ids_are_unique_and_sorted_as_they_are_made():
    made = [new_id() for _ in range(200_000)]
    assert made == sorted(set(made))


@pytest.mark.parametrize("times", [[5, 5, 5, 5], [9, 3, 10, 2], [0, 0, 0, 0]])
def test_ids_grow_when_the_clock_stands_still_or_steps_back(times):
    ticks = iter(times)
    ids = Ids(now_ns=lambda: next(ticks) * 1_000_000)
    made = [ids() for _ in times]
    assert made == sorted(set(made))


def test_two_sources_never_make_the_same_id():
    one, two = Ids(now_ns=lambda: 0), Ids(now_ns=lambda: 0)
    assert {one() for _ in range(1_000)}.isdisjoint({two() for _ in range(1_000)})


def test_threads_share_a_source():
    ids = id_source()
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend([ids() for _ in range(5_000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_draws_its_own_chance():
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, new_id().encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:  # noqa: PTH123 - a pipe, not a path
        theirs = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == 32
    assert theirs[16:] != new_id()[16:]


@pytest.mark.parametrize(
    ("key", "shards", "shard"),
    [*zip("0123456789", [5] * 10, [4, 3, 2, 1, 3, 1, 0, 1, 1, 4], strict=True), ("order-1", 5, 4), ("order-1", 24, 7)],
)
def test_a_key_is_in_the_shard_that_it_has_always_been_in(key, shards, shard):
    assert shard_of(key, shards) == shard


def test_keys_may_be_any_text():
    assert shard_of("Größe ☃", 1) == 0
    assert 0 <= shard_of("", 5) < 5


def test_an_id_tells_when_it_was_made() -> None:
    ids = Ids(lambda: 1_700_000_000_123_000_000)
    assert made_at(ids()) == made_at(ids()) == 1_700_000_000.123
    for stranger in ("", "order-1", "g" * 32, "0" * 31, "A" * 32):
        assert made_at(stranger) is None
