"""Tests of listing many jobs: the pages add up to the sorted whole, and no page costs as much as the whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laneway.broker import Broker, Listing, Order
from laneway.brokers.page_cursor import ORDERS
from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.server import Server
from laneway.clock import ManualClock
from laneway.jobs.data import Claim, JobView
from laneway.jobs.settlement import Settlement, buried, done, failed
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, keys, value
from tests.support.second_broker import SecondBroker
from tests.support.servers import RedisServer, servers

pytestmark = pytest.mark.conformance

WAYS: list[tuple[Listing, Order, bool]] = [
    (which, order, reverse) for which, orders in ORDERS.items() for order in orders for reverse in (False, True)
]
SHARDS = 5
PAGE = 400


def fill(broker: Broker, clock: ManualClock) -> None:
    """20,000 jobs of all kinds in all places, many alike in what they are sorted by."""
    broker.declare("q", SHARDS)
    hand = ScriptedWorker(broker)
    run_some(broker, hand, clock)
    # Due when they came, in order; then some of them go, or move.
    broker.enqueue([job(f"r{n * 7919 % 6000:04}") for n in range(6000)])
    for n in range(0, 6000, 20):
        broker.cancel("q", f"r{n:04}")
        broker.reschedule("q", f"r{n + 1:04}", delay_s=float(n % 300 - 150))
    clock.advance(1)
    # Overdue, and for later, with priorities.
    broker.enqueue([job(f"ü{n}", delay_s=float(n % 200 - 100), priority=n % 3 - 1) for n in range(6500)])
    for batch in range(3):
        broker.enqueue([call(f"k{n}🚲", f"c{batch}", delay_s=float(n % 7 - 3), body="b") for n in range(1000)])
    broker.enqueue([value(f"c{n}", f"v{m:02}", delay_s=float(n % 5)) for n in range(500) for m in range(12)])


def run_some(broker: Broker, hand: ScriptedWorker, clock: ManualClock) -> None:
    """Some fail, again and again; some die, some are done with, and some still run."""
    broker.enqueue([job(f"w{n}", body=f"{n}") for n in range(6500)])
    broker.enqueue([call(f"w{n}", f"{n}-{m}", body=f"{n}") for n in range(6500, 7000) for m in range(12)])
    while claims := hand.claim(limit=700):
        clock.advance(0.25)
        hand.settle(*(end for claim in claims if (end := ending(claim)) is not None))


def ending(claim: Claim) -> Settlement | None:
    number = int(claim.payloads[0].body)
    if number % 10 < 4:
        again = -1.0 if claim.retry_count < number % 4 - 1 else float(number % 50)
        return failed(claim, f"no {number}", 25, again if claim.retry_count < 3 else 1e6)
    if number % 10 < 7:
        return buried(claim, f"dead {number}")
    return done(claim) if number % 10 == 7 else None


class Counting:
    """A Redis broker, and what it costs."""

    def __init__(self, server: RedisServer) -> None:
        self.client = server.client()
        self.clock = ManualClock()
        self.broker = RedisBroker(Server.of(server.client()), clock=self.clock)

    def commands(self) -> int:
        """How many commands the server has carried out, those of scripts included."""
        return int(self.client.info("stats")["total_commands_processed"])

    def scripts(self) -> int:
        """How many scripts were run."""
        stats = self.client.info("commandstats")
        return sum(stats.get(name, {"calls": 0})["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval"))

    def close(self) -> None:
        self.broker.close()
        self.client.close()


@pytest.fixture(scope="module")
def expected() -> SecondBroker:
    clock = ManualClock()
    broker = SecondBroker(clock)
    fill(broker, clock)
    return broker


# On one of them: filling it takes long, and that all sort alike is seen in the conformance suite.
@pytest.fixture(scope="module", params=[*servers()][-1:])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counting]:
    """A server of its own, filled once: the tests only look."""
    server = RedisServer.start(servers()[request.param], tmp_path_factory.mktemp(request.param))
    filled = Counting(server)
    fill(filled.broker, filled.clock)
    yield filled
    filled.close()
    server.end()


def test_there_are_many_jobs_in_every_place(expected: SecondBroker, filled: Counting) -> None:
    """Else the tests below would see nothing. The numbers are those of the memory broker."""
    (numbers,) = expected.inspect.stats()
    assert numbers.length + numbers.busy + numbers.dead == 20_000
    assert min(numbers.fresh, numbers.delayed, numbers.retries, numbers.busy, numbers.dead) > 1_000
    assert filled.broker.inspect.stats() == [numbers]
    assert filled.broker.inspect.lags("q") == expected.inspect.lags("q")


@pytest.mark.parametrize(("which", "order", "reverse"), WAYS)
def test_the_pages_are_the_sorted_whole(
    expected: SecondBroker, filled: Counting, which: Listing, order: Order, reverse: bool
) -> None:
    """In every order and direction: nothing is left out, nothing shown twice, and equals come in their order.

    A page costs the server what a page does, wherever it is, and not what all jobs would.
    """
    everything = expected.inspect.listing("q", which, order=order, reverse=reverse, limit=100_000).jobs
    filled.broker.inspect.listing("q", which, order=order, limit=1)  # keys are sorted when somebody first asks for it
    found: list[JobView] = []
    costs: list[int] = []
    after: str | None = None
    while True:
        before = filled.commands()
        page = filled.broker.inspect.listing("q", which, order=order, reverse=reverse, after=after, limit=PAGE)
        costs.append(filled.commands() - before - 1)
        assert len(page.jobs) <= PAGE
        found += page.jobs
        after = page.after
        if after is None:
            break
    assert keys(found) == keys(everything)
    assert found == everything
    assert max(costs) < 4 * PAGE


@pytest.mark.parametrize(("which", "order", "reverse"), WAYS)
def test_a_listing_begins_anywhere(
    expected: SecondBroker, filled: Counting, which: Listing, order: Order, reverse: bool
) -> None:
    """With the value of a job in the middle, which many others may share, or of the last."""
    everything = expected.inspect.listing("q", which, order=order, limit=100_000).jobs
    for place, limit in ((0, 1), (len(everything) // 2, 1), (len(everything) // 3, 33), (-1, 33)):
        start = getattr(everything[place], order)
        page = filled.broker.inspect.listing("q", which, order=order, reverse=reverse, start=start, limit=limit)
        right = expected.inspect.listing("q", which, order=order, reverse=reverse, start=start, limit=limit)
        assert page.jobs == right.jobs
        assert (page.after is None) == (right.after is None)


@pytest.mark.parametrize("count", [500, 1_500])
def test_delayed_jobs_by_key_are_not_looked_for_among_all_others(redis_server: RedisServer, count: int) -> None:
    """Unless they are many themselves. Those that are not delayed stand before all of them, and behind."""
    counting, expected = Counting(redis_server), SecondBroker(ManualClock())
    for broker in (counting.broker, expected):
        broker.declare("q", 1)
        broker.enqueue([job(f"a{n}") for n in range(4_000)])
        broker.enqueue([job(f"{'bc'[n % 2]}{n * 7919 % count}", delay_s=float(n % 60 + 1)) for n in range(count)])
        broker.enqueue([job(f"d{n}", delay_s=-1.0, priority=n % 2) for n in range(500)])
        broker.cancel("q", "b0")
        broker.reschedule("q", "a7", delay_s=5.0)
    for reverse in (False, True):
        found: list[JobView] = []
        after: str | None = None
        while after is not None or not found:
            before = counting.scripts()
            page = counting.broker.inspect.listing("q", "delayed", order="key", reverse=reverse, after=after, limit=100)
            assert counting.scripts() - before <= 2 or count > 1_000  # at first Redis does not know the script
            found += page.jobs
            after = page.after
        assert found == expected.inspect.listing("q", "delayed", order="key", reverse=reverse, limit=10_000).jobs
    counting.close()
