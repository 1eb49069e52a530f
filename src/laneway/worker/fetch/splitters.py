"""Which shards of a queue a process serves. What a splitter says is binding: nothing else is claimed.

A splitter of your own is a function of the queue's name and its shard count that returns the shards to serve:

    def mine(queue: str, shards: int) -> Iterable[int]:
        return range(shards) if queue == "mail" else range(0, shards, 2)

Every shard must be served by somebody; `laneway check` names those that nobody serves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from ...errors import ConfigError

Splitter = Callable[[str, int], Iterable[int]]

NODES, NODE = "LANEWAY_NODES", "LANEWAY_NODE"


def default(queue: str, shards: int) -> Iterable[int]:
    """Every process serves all shards."""
    return range(shards)


def by_node(nodes: int, node: int) -> Splitter:
    """Deal the shards to `nodes` processes: number `node` of them, counted from 0, serves the shards i with
    `i mod nodes == node`."""
    for name, value, least in (("nodes", nodes, 1), ("node", node, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"by_node: {name} must be a whole number from {least} on, not {value!r}.")
    if node >= nodes:
        raise ConfigError(f"by_node: node must be below nodes, counted from 0; {node} is not below {nodes}.")

    def serve(queue: str, shards: int) -> Iterable[int]:
        return range(node, shards, nodes)

    return serve


def from_environment(environ: Mapping[str, str] = os.environ) -> Splitter | None:
    """The splitter that LANEWAY_NODES and LANEWAY_NODE ask for; None without them."""
    nodes, node = environ.get(NODES), environ.get(NODE)
    if not nodes and not node:
        return None
    if not nodes or not node:
        given, missing = (NODES, NODE) if nodes else (NODE, NODES)
        raise ConfigError(f"{given} is set and {missing} is not; set both, or neither.")
    for name, text in ((NODES, nodes), (NODE, node)):
        if not text.isascii() or not text.strip().isdigit():
            raise ConfigError(f"{name} must be a whole number, not {text!r}.")
    try:
        return by_node(int(nodes), int(node))
    except ConfigError as error:
        raise ConfigError(f"{NODES}={nodes} and {NODE}={node} do not fit together. {error}") from None
