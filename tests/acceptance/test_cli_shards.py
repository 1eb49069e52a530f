"""worker: which shards it serves, and the order in which it takes from them."""

from __future__ import annotations

import pytest

from laneway.jobs.shards import shard_of
from tests.support.shop import Shop

pytestmark = pytest.mark.acceptance


def test_worker_takes_a_scheduler_and_a_node(shop: Shop) -> None:
    (key,) = shop.put("resize")
    shop.ok("worker", "shop", "--until-empty", "--scheduler", "seq", "--nodes", "1", "--node", "0")
    assert shop.status("default", key) == "gone"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--nodes", "2"), "--nodes and --node go together"),
        (("--node", "2"), "--nodes and --node go together"),
        (("--nodes", "2", "--node", "2"), "node must be below nodes, counted from 0; 2 is not below 2."),
        (("--nodes", "0", "--node", "0"), "nodes must be a whole number from 1 on, not 0."),
    ],
)
def test_worker_says_what_is_wrong_with_its_node(shop: Shop, options: tuple[str, ...], sentence: str) -> None:
    done = shop.run("worker", "shop", "--until-empty", *options)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_the_worker_of_a_node_ends_without_what_others_serve(shop: Shop) -> None:
    keys = shop.put("resize", 20)
    shop.ok("worker", "shop", "--until-empty", "--nodes", "2", "--node", "1")
    left = [key for key in keys if shop.status("default", key) == "queued"]
    assert left == [key for key in keys if shard_of(key, 5) % 2 == 0]
    shop.ok("worker", "shop", "--until-empty", "-w", "2", LANEWAY_NODES="2", LANEWAY_NODE="0")
    assert {shop.status("default", key) for key in keys} == {"gone"}
