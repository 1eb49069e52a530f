"""FetchAllowance: how much a lane may fetch while other lanes want the same runners."""

from __future__ import annotations

import pytest

from laneway.clock import ManualClock
from laneway.worker.fetch.bus import GIVES_WAY_S, Bus, FetchAllowance
from laneway.worker.fetch.prefetch import Lane
from tests.unit.worker.fetch.test_bus import claims

pytestmark = pytest.mark.unit


class Place:
    """Two lanes and their rooms; `busy` runners of `concurrency` are at work."""

    def __init__(self, concurrency: int = 1, busy: int = 1) -> None:
        self.clock = ManualClock()
        self.a, self.b = Lane("a", concurrency), Lane("b", concurrency)
        self.bus = Bus([self.a, self.b], concurrency)
        self.told = 0
        self.bus.on_room = self._tell
        self.rooms = {lane.queue: FetchAllowance(lane, self.bus, self.clock.monotonic) for lane in self.bus.lanes}
        filler = Lane("filler", 1)
        self.bus.lanes.append(filler)
        self.bus.put(filler, claims("filler", busy))
        for _ in range(busy):
            assert self.bus.take(holding=False)
        filler.due = False

    def _tell(self) -> None:
        self.told += 1

    def units(self, queue: str) -> int:
        return self.rooms[queue].units()


def test_a_lane_alone_fetches_what_fills_it_and_one_for_each_idle_runner():
    lane = Lane("a", 5)
    bus = Bus([lane], 5)
    room = FetchAllowance(lane, bus)
    assert room.units() == 5
    lane.capacity = 10
    bus.put(lane, claims("a", 4))
    assert room.units() == 11


def test_with_all_runners_busy_a_lane_fetches_nothing():
    place = Place()
    assert place.units("a") == 0


def test_a_lane_with_nothing_in_hand_may_have_one_while_another_keeps_the_runners_busy():
    place = Place()
    place.a.capacity = 10
    assert place.units("b") == 1
    place.bus.put(place.b, claims("b", 1))
    assert place.units("b") <= 0


def test_it_may_not_when_the_others_have_nothing_left_or_are_slow():
    place = Place()
    place.a.capacity, place.a.due = 10, False
    assert place.units("b") == 0
    place.a.due = True
    place.a.stalled(0.25)
    assert place.units("b") == 0


def test_an_idle_runner_is_left_to_the_lane_that_was_served_longer_ago():
    place = Place(concurrency=1, busy=0)
    place.a.served, place.b.served = 7, 3
    assert (place.units("a"), place.units("b")) == (0, 1)
    place.b.served = 8
    assert (place.units("a"), place.units("b")) == (1, 0)


def test_only_as_many_are_left_as_the_others_need():
    place = Place(concurrency=5, busy=0)
    place.a.served = 7
    assert place.units("a") == 4


def test_runners_are_left_to_what_others_have_in_hand():
    place = Place(concurrency=2, busy=0)
    place.a.served = 7
    place.bus.put(place.b, claims("b", 2))
    assert place.units("a") == 0


def test_nothing_is_left_to_a_lane_that_has_nothing_due():
    place = Place(concurrency=1, busy=0)
    place.a.served, place.b.due = 7, False
    assert place.units("a") == 1


def test_a_runner_is_left_to_others_for_a_moment_only():
    """The other lane may get no answer."""
    place = Place(concurrency=1, busy=0)
    place.a.served = 7
    room = place.rooms["a"]
    assert (room.due_in(), room.is_over()) == (None, False)
    assert room.units() == 0
    assert room.due_in() == pytest.approx(GIVES_WAY_S)
    place.clock.advance(GIVES_WAY_S)
    assert room.due_in() == 0
    assert room.is_over()
    assert not room.is_over(), "it is told once"
    assert (room.units(), room.due_in()) == (1, None)
    room.taken()
    assert room.units() == 0, "it has taken its turn, and leaves runners to others as before"


def test_nothing_is_left_to_a_lane_whose_turns_fail():
    place = Place(concurrency=1, busy=0)
    place.a.served, place.b.fails = 7, True
    assert place.units("a") == 1
    place.bus.turned(place.b)
    assert place.told == 1, "which says so"


def test_a_lane_whose_turns_fail_does_not_keep_the_runners_busy():
    place = Place()
    place.a.capacity, place.a.fails = 10, True
    assert place.units("b") == 0


def test_others_are_told_when_there_is_a_flow_that_they_can_join():
    place = Place()
    place.bus.turned(place.a)
    assert place.told == 0
    place.a.capacity = 10
    place.bus.turned(place.a)
    place.bus.turned(place.a)
    assert place.told == 1
    place.a.due = False
    place.bus.turned(place.a)
    place.a.due = True
    place.bus.turned(place.a)
    assert place.told == 2


def test_others_are_told_when_a_lane_does_not_need_what_they_have_left_to_it():
    place = Place(concurrency=1, busy=0)
    place.a.served, place.b.due = 7, False
    place.bus.turned(place.b)
    assert place.told == 1
    place.a.due = False
    place.bus.turned(place.b)
    assert place.told == 1
