"""Tests of client calls on one Redis server: scripts, sockets, restarts, timeouts, the connection pool and forks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from laneway import Laneway
from laneway.brokers.redis.client.connections import receive, send
from laneway.brokers.redis.client.server import Server
from laneway.brokers.redis.script import Script
from laneway.errors import BrokerAwayError, BrokerError
from tests.support.redis_fixtures import Opener
from tests.support.servers import DURABLE, RedisServer, servers

pytestmark = pytest.mark.integration

ECHO = Script("echo", "return {KEYS[1], ARGV[1]}")
COUNT = Script("count", "return redis.call('INCR', KEYS[1])")
BROKEN = Script("broken", "return redis.call('HGETALL', KEYS[1])")


@pytest.fixture(params=servers())
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    """A server for one test that counts connections: on the shared ones, earlier tests may have left some."""
    server = RedisServer.start(servers()[request.param], tmp_path)
    yield server
    server.end()


def test_scripts_take_and_give_bytes(redis_server: RedisServer, open_url: Opener) -> None:
    server = open_url(redis_server.url)
    blob = bytes(range(256)) * 400
    assert server.run(ECHO, [b"{a}:k"], [blob]) == [b"{a}:k", blob]
    assert server.run_all([(ECHO, ["k"], [str(n)]) for n in range(500)]) == [
        [b"k", str(n).encode()] for n in range(500)
    ]
    assert server.run_all([]) == []
    assert server.do("SET", "k", b"\xff") == b"OK"
    assert server.do_all([("GET", "k"), ("DEL", "k"), ("GET", "k")]) == [b"\xff", 1, None]


def test_what_is_to_be_done_while_a_call_is_under_way(redis_server: RedisServer, open_url: Opener) -> None:
    server = open_url(redis_server.url)
    told: list[bool] = []
    with redis_server.client() as client:

        def answer() -> None:
            told.append(True)
            client.rpush("{a}:answer", "here")

        server.run(ECHO, ["{a}:k"], ["v"])
        assert server.exchange([("BLPOP", "{a}:answer", 30)], on_sent=answer)[0] == [b"{a}:answer", b"here"]
    assert told == [True]


def test_it_is_done_too_when_a_call_cannot_be_sent(open_url: Opener) -> None:
    told: list[bool] = []
    with pytest.raises(BrokerAwayError):
        open_url("redis://127.0.0.1:1").run(ECHO, ["k"], ["v"], lambda: told.append(True))
    assert told


def test_what_does_not_fit_into_the_socket_at_once(redis_server: RedisServer, open_url: Opener) -> None:
    blob = os.urandom(30_000_000)
    assert open_url(redis_server.url).run(ECHO, ["k"], [blob]) == [b"k", blob]


def test_a_unix_socket(redis_server: RedisServer, open_url: Opener) -> None:
    server = open_url(f"redis+unix://{redis_server.socket}")
    assert server.run(ECHO, ["k"], ["v"]) == [b"k", b"v"]
    assert server.wait(["nothing"], 0.01) == set()


def test_scripts_that_redis_has_forgotten_are_sent_again(redis_server: RedisServer, open_url: Opener) -> None:
    server = open_url(redis_server.url)
    for _ in range(2):
        server.do("SCRIPT", "FLUSH")
        assert server.run(COUNT, ["one"], []) in (1, 2)
        server.do("SCRIPT", "FLUSH")
        server.run(ECHO, ["k"], [""])  # one known, one not
        assert server.run_all([(COUNT, ["a"], []), (ECHO, ["k"], ["x"]), (COUNT, ["b"], [])])[1] == [b"k", b"x"]
    assert server.do_all([("GET", "one"), ("GET", "a"), ("GET", "b")]) == [b"2", b"2", b"2"]


def test_an_error_is_raised_when_all_answers_are_read(redis_server: RedisServer, open_url: Opener) -> None:
    server = open_url(redis_server.url)
    server.do("SET", "text", "x")
    with pytest.raises(BrokerError, match=r"cannot read: .* \(WRONGTYPE Operation against a key") as caught:
        server.run_all([(COUNT, ["n"], []), (BROKEN, ["text"], []), (COUNT, ["n"], [])])
    assert not isinstance(caught.value, BrokerAwayError)
    assert server.do("GET", "n") == b"2"


def test_nobody_there_is_said_quickly(open_url: Opener) -> None:
    server = open_url("redis://127.0.0.1:1")
    with pytest.raises(BrokerAwayError, match=r"^Redis at 127.0.0.1:1 is away; .*Connection refused\)\.$"):
        server.do("PING")
    with pytest.raises(BrokerAwayError, match=r"^Redis at no-such-host.invalid:6379 is away; see that it runs"):
        open_url("redis://no-such-host.invalid").do("PING")
    with pytest.raises(BrokerAwayError, match="is away"):
        server.wait(["k"], 0.1)


@pytest.mark.parametrize("name", servers())
def test_a_restart_is_not_noticed(name: str, tmp_path: Path, open_url: Opener) -> None:
    own = RedisServer.start(servers()[name], tmp_path, *DURABLE)
    try:
        server = open_url(own.url)
        assert server.run_all([(COUNT, ["n"], [])] * 3) == [1, 2, 3]
        assert server.wait(["w"], 0.01) == set()
        own.restart()
        assert server.run(COUNT, ["n"], []) == 4
        own.restart()
        assert server.do("GET", "n") == b"4"
        own.restart()
        assert server.wait(["w"], 0.01) == set()
        # Away for as long as a call is patient: the call outlasts it.
        own.kill()
        back = threading.Thread(target=own.restart)
        back.start()
        try:
            _until_answered(lambda: server.run(COUNT, ["n"], []))
        finally:
            back.join()
        own.kill()
        with pytest.raises(BrokerAwayError, match="is away"):
            server.run(COUNT, ["n"], [])
    finally:
        own.end()


def test_connections_that_a_restart_closed_are_replaced_at_once(
    tmp_path: Path, open_url: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.brokers.redis.client.server.PAUSES_S", ())
    own = RedisServer.start(servers()["valkey"], tmp_path)
    try:
        server = open_url(own.url)
        assert isinstance(server, Server)
        taken = [server.connections.take()[0] for _ in range(3)]
        for connection in taken:
            send(connection, [("PING",)])
            assert receive(connection, 1) == [b"PONG"]
            server.connections.give(connection)
        own.restart()
        assert server.do("PING") == b"PONG"
    finally:
        own.end()


def test_a_server_that_stands_still_is_away(tmp_path: Path, open_url: Opener) -> None:
    own = RedisServer.start(servers()["valkey"], tmp_path)
    try:
        server = open_url(f"{own.url}?timeout=0.2")
        server.do("PING")
        own.stop()
        with pytest.raises(BrokerAwayError, match="Timeout"):
            server.do("PING")
        own.cont()
        assert server.do("ECHO", "mine") == b"mine"  # not the answer to what was given up
    finally:
        own.end()


def test_a_replica_and_a_busy_server_are_away(tmp_path: Path, open_url: Opener) -> None:
    own = RedisServer.start(servers()["valkey"], tmp_path, "--busy-reply-threshold", "1")
    try:
        server = open_url(own.url)
        server.do("PING")
        endless = Script("endless", "while true do end")
        with own.client(socket_timeout=0.05) as client, pytest.raises((redis.TimeoutError, redis.ResponseError)):
            client.execute_command("EVAL", endless.text, 0)
        with pytest.raises(BrokerAwayError, match="busy with a long script"):
            server.do("GET", "k")
        server.do("SCRIPT", "KILL")
        server.do("REPLICAOF", "127.0.0.1", 1)
        with pytest.raises(BrokerAwayError, match="is a replica"):
            server.run(COUNT, ["n"], [])
        server.do("REPLICAOF", "NO", "ONE")
        assert server.run(COUNT, ["n"], []) == 1
    finally:
        own.end()


@pytest.mark.parametrize("name", servers())
def test_out_of_memory(name: str, tmp_path: Path, open_url: Opener) -> None:
    own = RedisServer.start(servers()[name], tmp_path, "--maxmemory", "1")
    try:
        with pytest.raises(BrokerError, match="out of memory and takes no more; let workers drain") as caught:
            open_url(own.url).run(COUNT, ["n"], [])
        assert not isinstance(caught.value, BrokerAwayError)
    finally:
        own.end()


def test_the_pool_is_lent_to_so_many_and_no_more(redis_server: RedisServer, open_url: Opener) -> None:
    server = open_url(f"{redis_server.url}?pool=2&pool_timeout=0.05")
    assert isinstance(server, Server)
    first, _ = server.connections.take()
    second, _ = server.connections.take()
    with pytest.raises(
        BrokerAwayError, match=r"All 2 connections to Redis at .* in use for 0.05 s; set a larger pool="
    ):
        server.do("PING")
    server.connections.give(first)
    assert server.do("PING") == b"PONG"
    server.connections.drop(second)
    assert server.do("PING") == b"PONG"


def test_many_threads_share_a_small_pool(own_server: RedisServer, open_url: Opener) -> None:
    server = open_url(f"{own_server.url}?pool=2&pool_timeout=60")
    wrong: list[object] = []

    def work(name: str) -> None:
        for n in range(200):
            if server.run(ECHO, [name], [str(n)]) != [name.encode(), str(n).encode()]:
                wrong.append((name, n))

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    with own_server.client(client_name="looks") as client:
        names = [row["name"] for row in client.client_list()]
        assert names.count("") <= 2


def test_closed_it_opens_again(own_server: RedisServer, open_url: Opener) -> None:
    server = open_url(own_server.url)
    for _ in range(2):
        assert server.do("PING") == b"PONG"
        assert server.wait(["k"], 0.01) == set()
        server.close()
        with own_server.client() as client:
            assert len(client.client_list()) == 1


def test_a_forked_process_has_connections_of_its_own(redis_server: RedisServer, open_url: Opener) -> None:
    server = open_url(redis_server.url)
    assert isinstance(server, Server)
    mine = server.do("CLIENT", "ID")
    server.wait(["k"], 0.01)
    busy, _ = server.connections.take()  # another thread's
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # The copy of a connection that a thread of the parent uses is closed too, or it would outlive the parent.
            kept = b"open" if busy._sock else b"closed"
            os.write(write, b"%d %s %s" % (server.do("CLIENT", "ID"), kept, server.wait(["w"], 0.01) or b"-"))
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    theirs, kept, waited = os.read(read, 100).split()
    os.close(read)
    assert int(theirs) != mine
    assert (kept, waited) == (b"closed", b"-")
    server.connections.give(busy)
    assert server.do("CLIENT", "ID") == mine  # the child has not closed it
    assert server.wait(["k"], 0.01) == set()


def test_a_ready_client(redis_server: RedisServer) -> None:
    with redis_server.client(decode_responses=True, protocol=3, db=3, health_check_interval=1) as client:
        server = Server.of(client)
        try:
            server.do("SET", "k", b"\xff")
            assert server.do("GET", "k") == b"\xff"
            assert client.exists("k")
            assert server.wait(["w"], 0.01) == set()
        finally:
            server.close()
        assert client.ping()


def _until_answered(call: object) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            call()  # type: ignore[operator]
            return
        except BrokerAwayError:
            assert time.monotonic() < until


def test_a_user_without_a_password_is_logged_in(own_server: RedisServer, open_url: Opener) -> None:
    own_server.order("ACL", "SETUSER", "free", "on", "nopass", "~*", "&*", "+@all")
    assert open_url(own_server.url.replace("//", "//free@")).do("ACL", "WHOAMI") == b"free"
    with pytest.raises(BrokerError, match="did not let Laneway in"):
        open_url(own_server.url.replace("//", "//unknown@")).do("PING")


@pytest.mark.parametrize("user", ["", "free:anything@"])
def test_a_server_with_too_many_clients_is_away(own_server: RedisServer, open_url: Opener, user: str) -> None:
    own_server.order("ACL", "SETUSER", "free", "on", "nopass", "~*", "&*", "+@all")
    with own_server.client() as client:
        client.config_set("maxclients", 1)
        with pytest.raises(BrokerAwayError, match="max number of clients reached"):
            open_url(own_server.url.replace("//", f"//{user}")).do("PING")


def test_a_password_that_is_set_while_an_app_runs_is_asked_for(own_server: RedisServer) -> None:
    app = Laneway(own_server.url)
    task = app.task(lambda: None, name="nothing")
    app.open()
    app.close()
    own_server.order("CONFIG", "SET", "requirepass", "new")
    with pytest.raises(BrokerError, match="did not let Laneway in"):
        task.enqueue()
