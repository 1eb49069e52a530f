"""The bus by itself: turns by weight, permits, and how far lanes fetch ahead."""

from __future__ import annotations

import threading

import pytest

from laneway.broker import Capabilities
from laneway.brokers.aws.settings import AWSSettings
from laneway.brokers.aws.unsupported import capabilities
from laneway.jobs.data import Claim, Payload
from laneway.jobs.settlement import done
from laneway.worker.fetch.bus import Bus
from laneway.worker.fetch.prefetch import LARGEST_LANE, VISIT_S, Lane

pytestmark = pytest.mark.unit


def claims(queue: str, count: int) -> list[Claim]:
    return [Claim(queue, n, f"{queue}-{n}", 1, 0.0, -1, 1, 0, [Payload("x")]) for n in range(count)]


def taken(bus: Bus, count: int) -> list[str]:
    return [item[1].queue for item in (bus.take_nowait() for _ in range(count)) if item]


def still_bus(lanes: list[Lane], concurrency: int) -> Bus:
    """A bus for which no time passes: a machine that halts must not end a visit."""
    return Bus(lanes, concurrency, lambda: 0.0)


def test_lanes_are_served_in_turn():
    lanes = [Lane("a", 1), Lane("b", 1)]
    bus = still_bus(lanes, 1)
    for lane in lanes:
        bus.put(lane, claims(lane.queue, 4))
    assert taken(bus, 8) in (["a", "b"] * 4, ["b", "a"] * 4)


def test_a_lane_is_served_by_its_weight():
    lanes = [Lane("a", 1), Lane("b", 1)]
    lanes[0].weight = 3
    bus = still_bus(lanes, 1)
    for lane in lanes:
        bus.put(lane, claims(lane.queue, 9))
    order = "".join(taken(bus, 12))
    assert "aaab" in order
    assert "aaaa" not in order


def test_a_visit_ends_with_its_time_though_few_have_run_in_it():
    now = 0.0
    lanes = [Lane("mixed", 1), Lane("event", 1)]
    lanes[0].weight = 1_000  # most of them are quick
    bus = Bus(lanes, 1, lambda: now)
    for lane in lanes:
        bus.put(lane, claims(lane.queue, 100))
    assert taken(bus, 12) == ["mixed", "event", *["mixed"] * 10]
    now += VISIT_S * 1.01  # one of them was slow
    assert taken(bus, 3) == ["event", "mixed", "mixed"]


def test_an_empty_lane_is_passed_over():
    lanes = [Lane("a", 1), Lane("b", 1)]
    bus = still_bus(lanes, 1)
    bus.put(lanes[1], claims("b", 3))
    assert taken(bus, 4) == ["b", "b", "b"]


def test_what_comes_into_an_empty_lane_goes_first_however_many_others_are_busy():
    lanes = [Lane(f"busy-{number}", 1) for number in range(10)]
    event = Lane("event", 1)
    bus = still_bus([*lanes, event], 1)
    for lane in lanes:
        lane.weight = 2
        bus.put(lane, claims(lane.queue, 100))
    taken(bus, 25)  # the event's lane has been visited, and nothing was there
    bus.put(event, claims("event", 1))
    assert taken(bus, 1) == ["event"]
    assert "event" not in taken(bus, 25)


def test_a_lane_that_is_filled_whenever_it_is_empty_gets_no_more_than_its_share():
    lanes = [Lane("a", 1), Lane("b", 1), Lane("meagre", 1)]
    bus = still_bus(lanes, 1)
    for lane in lanes[:2]:
        lane.weight = 3
        bus.put(lane, claims(lane.queue, 100))
    order = []
    for _ in range(70):
        if not lanes[2].waiting:
            bus.put(lanes[2], claims("meagre", 1))
        order += taken(bus, 1)
    counts = {lane.queue: order.count(lane.queue) for lane in lanes}
    assert counts["meagre"] <= 12  # one for three and three, and one at either end
    assert abs(counts["a"] - counts["b"]) <= 3


def test_of_what_comes_into_an_empty_lane_as_many_go_first_as_on_a_visit():
    lanes = [Lane("a", 1), Lane("b", 1)]
    bus = still_bus(lanes, 1)
    lanes[1].weight = 2
    bus.put(lanes[0], claims("a", 10))
    taken(bus, 3)
    bus.put(lanes[1], claims("b", 9))
    assert taken(bus, 2) == ["b", "b"]
    assert "a" in taken(bus, 3)


def test_so_do_those_that_come_one_by_one_until_the_next_visit():
    lanes = [Lane("a", 1), Lane("b", 1), Lane("event", 1)]
    bus = Bus(lanes, 1)
    for lane in lanes:
        lane.weight = 10
    for lane in lanes[:2]:
        bus.put(lane, claims(lane.queue, 100))
    taken(bus, 25)
    for _ in range(3):
        bus.put(lanes[2], claims("event", 1))
        assert taken(bus, 2)[0] == "event"


def test_an_empty_lane_with_too_much_unsettled_does_not_go_first():
    lanes = [Lane("a", 1), Lane("b", 1)]
    bus = still_bus(lanes, 1)
    bus.put(lanes[0], claims("a", 10))
    taken(bus, 3)
    lanes[1].most, lanes[1].in_turn = 1, 1
    bus.put(lanes[1], claims("b", 1))
    assert taken(bus, 3) == ["a", "a", "a"]
    lanes[1].in_turn = 0
    assert "b" in taken(bus, 2)


def test_a_lane_with_too_much_unsettled_hands_out_nothing():
    """Until a turn has recorded it; the other lanes go on."""
    lanes = [Lane("a", 1), Lane("b", 1)]
    bus = still_bus(lanes, 1)
    for lane in lanes:
        bus.put(lane, claims(lane.queue, 3))
    lanes[0].most, lanes[0].in_turn = 2, 1
    lanes[0].finish(done(claims("a", 1)[0]), 0.0)
    assert taken(bus, 6) == ["b", "b", "b"]
    lanes[0].in_turn = 0
    assert taken(bus, 6) == ["a", "a", "a"]


@pytest.mark.parametrize(
    ("typical_s", "capacity", "weight"),
    [(1.0, 0, 1), (0.04, 2, 1), (0.02, 5, 1), (0.001, 100, 20), (0.000_01, LARGEST_LANE, LARGEST_LANE)],
)
def test_a_lane_fetches_ahead_what_run_times_justify(typical_s, capacity, weight):
    lane = Lane("a", concurrency=5)
    lane.learn([typical_s] * 9)
    assert (lane.capacity, lane.weight) == (capacity, weight)


def test_a_broker_may_say_how_many_are_run_on_a_visit():
    usual = Capabilities(shared=True)
    measured, tens = Lane("a", 5, weight=usual.weight), Lane("b", 5, weight=10)
    for lane in (measured, tens):
        lane.learn([0.001] * 9)
    assert (measured.weight, tens.weight) == (20, 10)
    tens.stalled(1.0)
    assert tens.weight == 10
    assert capabilities(AWSSettings()).weight == 10


def test_one_slow_job_among_many_does_not_stop_fetching_ahead():
    lane = Lane("a", concurrency=5)
    lane.learn([0.0001] * 50 + [30.0])
    assert lane.capacity == LARGEST_LANE


def test_a_single_run_that_had_to_wait_hardly_matters():
    lane = Lane("a", concurrency=5)
    lane.learn([0.000_01] * 50)
    lane.learn([0.005])
    assert lane.typical_s < 0.000_5
    lane.learn([0.005] * 50)
    assert lane.typical_s > 0.002


def test_a_stalled_lane_fetches_one_at_a_time_and_recovers():
    lane = Lane("a", concurrency=5)
    lane.learn([0.0001] * 50)
    lane.stalled(0.25)
    assert lane.capacity == 0
    for _ in range(16):
        lane.learn([0.0001] * 5)
    assert lane.capacity > 500


def test_a_permit_given_away_must_be_given_back_before_it_is_used_again():
    lane = Lane("a", 1)
    bus = still_bus([lane], concurrency=1)
    bus.put(lane, claims("a", 2))
    assert bus.take(holding=False)
    second = []
    asked = threading.Thread(target=lambda: second.append(bus.take(holding=False)))
    asked.start()
    assert bus.idle == 0
    assert second == []
    bus.give_back()
    asked.join(30)
    assert second[0][1].key == "a-1"


def test_closing_sends_waiting_runners_home():
    bus = still_bus([Lane("a", 2)], concurrency=2)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(bus.take(holding=False))) for _ in range(3)]
    for thread in threads:
        thread.start()
    bus.close()
    for thread in threads:
        thread.join(30)
    assert answers == [None, None, None]


def test_a_thread_that_is_woken_is_not_counted_on_again():
    """One idle runner, two claims put one after the other: the second must find another runner."""
    lane = Lane("a", 2)
    bus = still_bus([lane], concurrency=2)
    grown = []
    bus.grow = lambda: grown.append(1)
    idle = threading.Event()
    bus.on_room = idle.set
    answers = []
    thread = threading.Thread(target=lambda: answers.append(bus.take(holding=False)))
    thread.start()
    assert idle.wait(30)
    for _ in range(2):
        bus.put(lane, claims("a", 1))
        bus.wake_runners(lane)
    assert grown == [1]
    bus.close()
    thread.join(30)


def test_what_is_put_wakes_nobody_before_it_is_called_for():
    lane = Lane("a", 1)
    bus = still_bus([lane], concurrency=1)
    idle = threading.Event()
    bus.on_room = idle.set
    answers = []
    thread = threading.Thread(target=lambda: answers.append(bus.take(holding=False)))
    thread.start()
    assert idle.wait(30)
    bus.put(lane, claims("a", 1))
    assert (len(lane.waiting), bus.idle) == (1, 1)
    bus.wake_runners(lane)
    thread.join(30)
    assert answers[0][1].key == "a-0"


def test_help_is_called_only_when_there_is_work_and_a_permit_and_nobody_idle():
    lane = Lane("a", 2)
    bus = still_bus([lane], concurrency=2)
    grown = []
    bus.grow = lambda: grown.append(1)
    bus.call_for_help()
    assert grown == []
    lane.waiting.extend(claims("a", 3))
    bus.call_for_help()
    assert grown == [1]
    assert bus.take(holding=False)
    assert bus.take(holding=False)
    bus.call_for_help()
    assert grown == [1], "both permits are held"


def test_a_woken_runner_counts_as_idle_until_it_has_taken_its_claim():
    """Its claim counts as waiting until then; otherwise the fetcher would believe that there is no room."""
    lane = Lane("a", 1)
    bus = still_bus([lane], concurrency=1)
    idle = threading.Event()
    bus.on_room = idle.set
    thread = threading.Thread(target=bus.take, args=(False,))
    thread.start()
    assert idle.wait(30)
    with bus._work:  # waits for the runner to wait, and keeps it from going on
        lane.waiting.extend(claims("a", 1))
        bus._idle -= 1
        bus._woken += 1
        bus._work.notify()
        assert bus.idle - len(lane.waiting) == 0
    thread.join(30)
    assert bus.idle - len(lane.waiting) == 0


def test_a_broker_may_have_more_fetched_ahead_but_not_more_run_on_a_visit():
    usual, slow = Lane("a", 5, Capabilities(shared=True).ahead_s), Lane("b", 5, 0.2)
    for lane in (usual, slow):
        lane.learn([0.002])
    assert (usual.capacity, slow.capacity) == (50, 500)
    assert usual.weight == slow.weight == 10
