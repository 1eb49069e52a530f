"""The connection to Redis is cut before a call or after it was executed: every verb takes effect once.

The test cuts at every request of a verb. First the client itself repeats the request. Then the network stays away
until the client gives up, and the caller repeats the verb. The visible state afterwards, and the order in which the
jobs then run, must equal those of an undisturbed copy. `make chaos` cuts at every request, `make test` at a few of
each verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import redis

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.server import PAUSES_S, Server
from laneway.brokers.redis.script import load
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.ids import new_id
from laneway.jobs.data import StartedRun
from laneway.jobs.settlement import done
from laneway.testing.conformance.events import QUEUES, copies
from laneway.testing.conformance.fixtures import ScriptedWorker, bodies, calls, job, keys, numbers, put
from tests.chaos.verbs import VERBS, World
from tests.support.redis_proxy import LOSE_ANSWER, LOSE_REQUEST, PASS, Proxy, all_pass
from tests.support.servers import RedisServer, servers
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

#: What is lost, and who makes the call again. (A lost request is much like a lost answer to the one before it.)
WAYS = list(product((LOSE_ANSWER, LOSE_REQUEST) if LARGE else (LOSE_ANSWER,), ("client", "caller")))
#: At how many requests of a verb, and on which servers.
PLACES = 10_000 if LARGE else 2
SERVERS = list(servers()) if LARGE else ["valkey"]


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.port) as proxy:
        yield proxy


@pytest.fixture
def open_at() -> Iterator[Callable[..., RedisBroker]]:
    """Brokers on a port; closed at the end of the test."""
    brokers: list[RedisBroker] = []

    def open_at(port: int, clock: ManualClock | None = None, prefix: str = "laneway") -> RedisBroker:
        brokers.append(RedisBroker(Server.of(redis.Redis(port=port)), prefix=prefix, clock=clock))
        return brokers[-1]

    yield open_at
    for broker in brokers:
        broker.close()


Open = Callable[..., RedisBroker]


@pytest.mark.parametrize("redis_server", SERVERS, indirect=True)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_harmless_when_repeated(
    verb: str, proxy: Proxy, redis_server: RedisServer, open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = VERBS[verb]
    direct, cut = open_at(redis_server.port), open_at(proxy.port)

    def begin(prefix: str) -> World:
        """A world whose verb is called through the proxy, on a connection that has been used."""
        clock = ManualClock()
        world = World(with_prefix(direct, prefix, clock), clock)
        world.broker = with_prefix(cut, prefix, clock)
        world.broker.inspect.queues()
        proxy.begin(all_pass)
        return world

    act(begin("rehearsal"))  # Redis knows the scripts from here on
    twin = begin("twin")
    answer = act(twin)
    requests = proxy.count
    seen, ran = twin.look(), twin.drain()
    step = -(-requests // PLACES)
    for fate, by in WAYS:
        # It gives up at once.
        monkeypatch.setattr("laneway.brokers.redis.client.server.PAUSES_S", () if by == "caller" else PAUSES_S)
        for place in range((requests - 1) % step, requests, step):
            where = f"{fate} {place} of {requests}, repeated by the {by}"
            world = begin(f"{fate[5:]}-{by}-{place}")
            proxy.plan = lambda number, place=place, fate=fate, by=by: (  # type: ignore[misc]  # mypy knows no such default
                fate if number == place or (by == "caller" and number > place) else PASS
            )
            try:
                again = act(world)
            except BrokerAwayError:
                assert by == "caller" or verb.startswith("wait"), where
                proxy.plan = all_pass
                again = act(world)
            # On a busy machine a wait may be over before it makes that request.
            assert proxy.lost or (verb.startswith("wait") and proxy.count <= place), where
            for name, what in world.look().items():
                assert what == seen[name], f"{name}: {where}"
            assert world.drain() == ran, where
            if verb.startswith("turn"):
                assert again == answer, where
    # And somebody flushes the scripts before every request: there is no more to that than one more request.
    world = begin("flushed")
    with redis_server.client() as client:

        def flush(words: list[bytes]) -> None:
            if words[0] == b"EVALSHA":
                client.script_flush()

        proxy.before = flush
        again = act(world)
    proxy.before = lambda words: None
    assert (again, world.look(), world.drain()) == (answer, seen, ran)


def with_prefix(broker: RedisBroker, prefix: str, clock: ManualClock) -> RedisBroker:
    """Another broker on the same connections."""
    return RedisBroker(broker._server, prefix=prefix, clock=clock)


# -- what happens before it is repeated ----------------------------------------------------------------


def finish(broker: RedisBroker, *queues: str) -> list[str]:
    """Run all that is due, elsewhere."""
    hand, ran = ScriptedWorker(broker, new_id()), list[str]()
    for queue in queues:
        claims = hand.claim(queue=queue)
        hand.settle(*map(done, claims), queue=queue)
        ran += keys(claims)
    return ran


def lose_first_answer(number: int) -> str:
    return LOSE_ANSWER if number == 0 else PASS


@pytest.mark.parametrize("shards", [1, 5])
def test_plain_jobs_that_were_finished_before_their_enqueueing_is_repeated_stay_finished(
    proxy: Proxy, redis_server: RedisServer, open_at: Open, shards: int
) -> None:
    broker, other = open_at(proxy.port), open_at(redis_server.port)
    broker.declare("q", shards)
    put(broker, "before")
    finish(other, "q")
    ran: list[str] = []
    proxy.when_lost = lambda: ran.extend(finish(other, "q"))
    proxy.begin(lose_first_answer)
    put(broker, "a", "b", "c")
    assert (sorted(ran), proxy.lost) == (["a", "b", "c"], 1)
    assert numbers(other).length == 0
    put(broker, "a")  # another call of the same sender is not taken for a repeat
    assert finish(other, "q") == ["a"]


def test_chunks_of_a_long_list_that_were_finished_before_they_are_repeated_stay_finished(
    proxy: Proxy, redis_server: RedisServer, open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.brokers.redis.enqueue.CHUNK", 5)
    broker, other = open_at(proxy.port), open_at(redis_server.port)
    broker.declare("q", 3)
    put(broker, "before")
    names = [f"job-{n}" for n in range(50)]
    for lost in range(10):
        finish(other, "q")
        ran: list[str] = []
        proxy.when_lost = lambda ran=ran: ran.extend(finish(other, "q"))  # type: ignore[misc]  # mypy knows no such default
        proxy.begin(lambda number, lost=lost: LOSE_ANSWER if number == lost else PASS)  # type: ignore[misc]
        put(broker, *names)
        assert proxy.lost == 1
        assert sorted(ran + finish(other, "q")) == sorted(names), f"lost answer {lost}"


def test_copies_of_an_event_that_were_finished_before_publishing_is_repeated_stay_finished(
    proxy: Proxy, redis_server: RedisServer, open_at: Open
) -> None:
    broker, other = open_at(proxy.port), open_at(redis_server.port)
    broker.enqueue(copies("before"))
    finish(other, *QUEUES)
    ran: list[str] = []
    proxy.when_lost = lambda: ran.extend(finish(other, *QUEUES))
    proxy.begin(lose_first_answer)
    broker.enqueue(copies("event"))
    assert (ran, proxy.lost) == ([copy.key for copy in copies("event")], 1)
    assert finish(other, *QUEUES) == []


def test_what_a_run_sent_and_was_finished_before_its_turn_is_repeated_stays_finished(
    proxy: Proxy, redis_server: RedisServer, open_at: Open
) -> None:
    broker, other = open_at(proxy.port), open_at(redis_server.port)
    broker.declare("q", 5)
    other.declare("other", 5)
    hand = ScriptedWorker(broker)
    put(broker, "parent")
    parent = done(hand.one())
    parent.outbox = [job("child"), job("child", queue="other")]
    broker.inspect.queues()  # it knows both, and so the turn is the first thing it asks for
    ran: list[str] = []
    proxy.when_lost = lambda: ran.extend(finish(other, "q", "other"))
    proxy.begin(lose_first_answer)
    answer = hand.turn(0, parent)
    assert (ran, proxy.lost, answer.refused) == (["child", "child"], 1, [])
    assert [stats.length for stats in other.inspect.stats()] == [0, 0]
    hand.turn(10)
    assert [stats.busy for stats in other.inspect.stats()] == [0, 0]


def test_deaths_are_counted_by_whoever_goes_on(
    proxy: Proxy, redis_server: RedisServer, open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.brokers.redis.client.server.PAUSES_S", ())
    broker, other = open_at(proxy.port), open_at(redis_server.port)
    broker.declare("q", 5)
    broker.leave(ScriptedWorker(broker, "rehearsal").name)  # Redis knows the scripts from here on
    hand = ScriptedWorker(broker)
    put(broker, "killer", "neighbour")
    tokens = {claim.key: claim.token for claim in hand.claim()}
    proxy.begin(lambda number: PASS if number == 0 else LOSE_REQUEST)
    with pytest.raises(BrokerAwayError):
        broker.leave(hand.name, [StartedRun("q", "killer", tokens["killer"])])
    assert other.reclaim() == 2
    assert {key: other.inspect.find("q", key)[0].deaths for key in tokens} == {"killer": 1, "neighbour": 0}
    proxy.begin(all_pass)
    broker.leave(hand.name, [StartedRun("q", "killer", tokens["killer"])])  # asked again, it ends there
    assert other.inspect.workers() == []
    assert other.inspect.find("q", "killer")[0].deaths == 1


# -- scripts that are forgotten ------------------------------------------------------------------------


def test_a_chunk_that_redis_knew_no_script_for_is_stored_before_those_behind_it(
    proxy: Proxy, redis_server: RedisServer, open_at: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody flushes the scripts, and somebody else brings them back, while a list is on its way."""
    monkeypatch.setattr("laneway.brokers.redis.enqueue.CHUNK", 2)
    broker, other = open_at(proxy.port), open_at(redis_server.port)
    broker.declare("q", 1)
    names = [str(n) for n in range(12)]
    with redis_server.client() as client:
        for forgotten in range(6):
            seen = iter(range(1_000))

            def meddle(words: list[bytes], forgotten: int = forgotten, seen: Iterator[int] = seen) -> None:
                if words[0] == b"EVALSHA":
                    if next(seen) == forgotten:
                        client.script_flush()
                    else:
                        client.script_load(load("enqueue").text)

            proxy.before = meddle
            calls(broker, "k", *names)
            proxy.before = lambda words: None
            hand = ScriptedWorker(other, f"worker-{forgotten}")
            claim = hand.one()
            assert bodies(claim) == names, f"forgotten at {forgotten}"
            hand.settle(done(claim))
