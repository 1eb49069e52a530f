"""ClusterServer: finds the server of each key, follows moved slots, and calls many servers at once.

All keys of one call must be in one slot. The calls of one pipeline have no order among themselves.

While a slot is being moved key by key, its keys are on two servers, and a script that touches several keys would
find only some of them. So no script runs in that slot until it has moved: each script names a key that never exists.
For such a key the old server redirects to the new one (ASK), and the client never follows an ASK. A single command
is safe: it runs where its key is whole, or waits, too.
"""

from __future__ import annotations

import random
import threading
import time
from binascii import crc_hqx
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ....errors import BrokerAwayError, BrokerError
from ....failpoints import armed, reach
from . import redis_py
from .connections import Address, Command, Connection, Key, receive, send
from .errors import explain, is_away, is_lost, redirection
from .server import RedisClient, Server, is_stale, pauses_from
from .wait import wait_for_any

if TYPE_CHECKING:
    from redis.cluster import RedisCluster

SLOTS = 16_384
#: A key that moves more often than this while it is asked for is given up.
_MOST_MOVES = 16

Place = tuple[str, int]


class ClusterServer(RedisClient):
    """The servers of a Cluster."""

    is_cluster = True

    def __init__(
        self,
        address: Address,
        hosts: Sequence[Place],
        *,
        pool: int = 5,
        pool_timeout_s: float = 5.0,
        guard_s: float = 5.0,
    ) -> None:
        self.place = "The Redis Cluster at " + ", ".join(f"{host}:{port}" for host, port in hosts)
        self._address = address
        self._hosts = list(hosts)
        self._options: dict[str, Any] = {"pool": pool, "pool_timeout_s": pool_timeout_s, "guard_s": guard_s}
        self._lock = threading.Lock()
        self._nodes: dict[Place, Server] = {}
        #: The server of each slot; empty until one is needed, and after one was found to be elsewhere or away.
        self._slots: list[Server | None] = []
        self._replicas: list[Server] = []
        self._nudges = 0

    @classmethod
    def of(cls, client: RedisCluster, *, pool: int = 5, pool_timeout_s: float = 5.0) -> ClusterServer:
        """The Cluster of a ready redis-py client, with connections of our own."""
        untyped: Any = client
        nodes = untyped.get_nodes()
        theirs = untyped.get_redis_connection(nodes[0]).connection_pool
        return cls(
            Address.of(theirs.connection_class, theirs.connection_kwargs),
            [(str(node.host), int(node.port)) for node in nodes],
            pool=pool,
            pool_timeout_s=pool_timeout_s,
        )

    def __repr__(self) -> str:
        return f"<ClusterServer: {self.place}>"

    # -- calls -----------------------------------------------------------------------------------------

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        began = time.monotonic()
        answers: list[Any] = [None] * len(commands)
        todo: Iterable[int] = range(len(commands))
        commands = [_guarded(command) for command in commands]
        moves, pauses = 0, None
        while todo:
            groups: dict[Server, list[int]] = {}
            for n in todo:
                groups.setdefault(self._server(_key(commands[n])), []).append(n)
            stale = self._round(groups, commands, answers)
            stale = stale if not moves else set()
            wrong = [(n, answers[n], server) for server, numbers in groups.items() for n in numbers]
            wrong = [(n, answer, server) for n, answer, server in wrong if isinstance(answer, Exception)]
            moved = self._follow(wrong) if moves < _MOST_MOVES else []
            away = [n for n, answer, _ in wrong if is_away(answer) and n not in stale]
            if away:
                self._slots = []  # others may have taken over
                pauses = pauses or pauses_from(began)
                away = away if next(pauses, False) else []
            moves += 1
            todo = sorted({*moved, *away, *stale})
        return answers

    def _round(self, groups: dict[Server, list[int]], commands: Sequence[Command], answers: list[Any]) -> set[int]:
        """Ask all servers, then read from all; the calls that met a connection which may have been closed long ago."""
        stale: set[int] = set()
        sent: list[tuple[Server, list[int], Connection, bool]] = []

        def fail(server: Server, numbers: list[int], connection: Connection, used: bool, error: Exception) -> None:
            server.connections.drop(connection)
            server.connections.drop_idle()
            for n in numbers:
                answers[n] = error
            if is_lost(error) and is_stale(error, used):
                stale.update(numbers)

        try:
            for server, numbers in sorted(groups.items(), key=lambda group: group[0].place):  # so that none deadlock
                connection, used = server.connections.take()
                sent.append((server, numbers, connection, used))
                try:
                    send(connection, [commands[n] for n in numbers])
                except (redis_py.RedisError, OSError) as error:
                    fail(*sent.pop(), error)
            if armed:
                reach("inside call")
            while sent:
                server, numbers, connection, used = sent[0]
                try:
                    for n in numbers:
                        answers[n] = _unfollowed(receive(connection, 1)[0])
                except (redis_py.RedisError, OSError) as error:
                    fail(*sent.pop(0), error)
                else:
                    server.connections.give(connection)
                    del sent[0]
        except BaseException:
            for server, _, connection, _ in sent:
                server.connections.drop(connection)  # its answers are still to come
            raise
        return stale

    def _follow(self, wrong: list[tuple[int, Exception, Server]]) -> list[int]:
        """Note where slots have moved to; the calls that are to be made there."""
        moved = []
        for n, answer, server in wrong:
            if found := redirection(answer):
                host = str(found.host) or server.connections.address.arguments["host"]
                to = self._node((host, int(found.port)))
                moved.append(n)
                if slots := self._slots:
                    slots[int(found.slot_id)] = to
        return moved

    # -- servers ---------------------------------------------------------------------------------------

    def servers(self) -> list[Server]:
        """Every server that holds a part of the data."""
        return list(dict.fromkeys(server for server in self._slots or self._learn() if server is not None))

    def replicas(self) -> list[Server]:
        """Every server that holds a copy only."""
        self.servers()
        return self._replicas

    def _server(self, key: Key | None) -> Server:
        slots = self._slots or self._learn()
        if key is None:
            return random.choice(self.servers())
        server = slots[_slot(key)]
        if server is None:
            self._slots = []
            raise BrokerAwayError(f"{self.place} has no server for a part of the keys; see `CLUSTER INFO`.")
        return server

    def _node(self, place: Place) -> Server:
        with self._lock:
            if place not in self._nodes:
                self._nodes[place] = Server(self._address.at(*place), **self._options)
            return self._nodes[place]

    def _learn(self) -> list[Server | None]:
        """Ask any server which one has which slots."""
        known = list(self._nodes)
        random.shuffle(known)
        trouble: BrokerError | None = None
        for place in dict.fromkeys([*known, *self._hosts]):
            try:
                rows = self._node(place).exchange([("CLUSTER", "SLOTS")], patient=False)[0]
                if isinstance(rows, Exception):
                    raise explain(rows, self.place) from rows
            except BrokerError as error:
                trouble = error
                continue
            slots: list[Server | None] = [None] * SLOTS
            replicas: list[Server] = []
            for first, last, *nodes in rows:
                # A server that does not know its own address means the one it was asked at.
                names = [host.decode() if host and host != b"?" else place[0] for host, *_ in nodes]
                primary, *others = [self._node((name, port)) for name, (_, port, *_) in zip(names, nodes, strict=True)]
                slots[first : last + 1] = [primary] * (last + 1 - first)
                replicas += others
            self._slots, self._replicas = slots, list(dict.fromkeys(replicas))
            return slots
        assert trouble is not None, "A Cluster has at least one host."
        raise trouble

    # -- waiting ---------------------------------------------------------------------------------------

    def wait(self, keys: Sequence[Key], timeout_s: float, unless: Callable[[], bool] | None = None) -> set[bytes]:
        nudges = self._nudges
        by_slot: dict[int, list[Key]] = {}
        for key in keys:
            by_slot.setdefault(_slot(key), []).append(key)
        for _ in range(_MOST_MOVES):
            try:
                parts = [(self._server(some[0]).waits, some) for some in by_slot.values()]
                return wait_for_any(
                    parts, timeout_s, lambda: nudges != self._nudges or (unless is not None and unless())
                )
            except BrokerError as error:
                self._slots = []
                found = redirection(error.__cause__)
                if found is None:
                    raise
                if not isinstance(found, redis_py.MovedError):
                    raise explain(_unfollowed(found), self.place) from error
        raise BrokerAwayError(f"{self.place} keeps moving the keys that Laneway waits for; try again in a while.")

    def nudge(self) -> None:
        self._nudges += 1
        for server in list(self._nodes.values()):
            server.nudge()

    def close(self) -> None:
        for server in list(self._nodes.values()):
            server.close()


def _slot(key: Key) -> int:
    """The slot of a key: of its hash tag, the text between its first { and the next }, if it has one."""
    name = key if isinstance(key, bytes) else key.encode()
    start = name.find(b"{") + 1
    end = name.find(b"}", start)
    return crc_hqx(name[start:end] if start and end > start else name, 0) % SLOTS


def _key(command: Command) -> Key | None:
    """The key that says where a command belongs."""
    where = 3 if command[0] in ("EVAL", "EVALSHA") else 1
    key = command[where] if len(command) > where else None
    return key if isinstance(key, (bytes, str)) else None


def _guarded(command: Command) -> Command:
    """A script that names, after its other keys, one that never exists: their hash tag alone. If it is named already,
    as a queue's is, nothing is added."""
    key = _key(command) if command[0] in ("EVAL", "EVALSHA") else None
    if key is None:
        return command
    text = key.decode() if isinstance(key, bytes) else key
    tag = text[: text.find("}") + 1]
    if tag in ("", text):
        return command
    kind, script, count, *rest = command
    assert isinstance(count, int)
    return (kind, script, count + 1, *rest[:count], tag, *rest[count:])


def _unfollowed(answer: Any) -> Any:
    """An answer, with one that points to where a slot is being moved to replaced by what that means: not now."""
    if isinstance(answer, Exception) and (found := redirection(answer)) and not isinstance(found, redis_py.MovedError):
        return redis_py.make("TryAgainError", f"slot {found.slot_id} is on its way to {found.host}:{found.port}")
    return answer
