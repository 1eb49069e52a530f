"""Tests of splitting messages into SQS requests, and of retrying or rejecting the entries that SQS does not take."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from laneway.brokers.aws.errors import BatchRefusedError
from laneway.brokers.aws.sqs.send_batch import PAUSES_S, rounds, send_batch, split
from laneway.errors import BrokerAwayError

pytestmark = pytest.mark.unit


class Queue:
    """An SQS queue that does not take some entries, for so many times."""

    def __init__(self, **failing: tuple[int, dict[str, Any]]) -> None:
        self.failing = {name.removeprefix("m"): what for name, what in failing.items()}
        self.asked: list[list[str]] = []
        self.tried: Counter[str] = Counter()

    def sqs(self, operation: str, **params: Any) -> dict[str, Any]:
        assert operation == "send_message_batch"
        self.asked.append([entry["Id"] for entry in params["Entries"]])
        answer: dict[str, Any] = {}
        for entry in params["Entries"]:
            id = entry["Id"]
            self.tried[id] += 1
            times, told = self.failing.get(id, (0, {}))
            if self.tried[id] > times:
                answer.setdefault("Successful", []).append({"Id": id})
            elif told:
                answer.setdefault("Failed", []).append({"Id": id, **told})
        return answer


AGAIN = {"SenderFault": False, "Code": "InternalError", "Message": "Try again."}
THROTTLED = {"SenderFault": True, "Code": "RequestThrottled", "Message": "Slowly."}
FAULT = {"SenderFault": True, "Code": "InvalidMessageContents", "Message": "Bad character."}


def sending(queue: Queue, count: int = 4) -> tuple[list[int], list[float]]:
    """Send so many; returns what was told to be sent, and the pauses."""
    sent: list[int] = []
    pauses: list[float] = []
    entries = {number: {"Id": str(number)} for number in range(count)}
    try:
        send_batch(queue, "url", entries, sent.append, pauses.append)  # type: ignore[arg-type]
    finally:
        assert len(set(sent)) == len(sent)
    return sent, pauses


def test_what_is_taken_is_told_at_once() -> None:
    queue = Queue()
    assert sending(queue) == ([0, 1, 2, 3], [])
    assert queue.asked == [["0", "1", "2", "3"]]


@pytest.mark.parametrize("told", [AGAIN, THROTTLED, {}], ids=["again", "throttled", "no word"])
def test_what_is_not_taken_is_tried_again_without_the_others(told: dict[str, Any]) -> None:
    queue = Queue(m1=(1, told), m3=(3, told))
    sent, pauses = sending(queue)
    assert sent == [0, 2, 1, 3]
    assert queue.asked == [["0", "1", "2", "3"], ["1", "3"], ["3"], ["3"]]
    assert all(longest / 2 <= pause <= longest for pause, longest in zip(pauses, PAUSES_S, strict=False))
    assert len(pauses) == 3


def test_in_the_end_it_is_said_how_many_were_not_taken() -> None:
    queue = Queue(m1=(99, AGAIN), m2=(99, AGAIN))
    with pytest.raises(BrokerAwayError) as caught:
        sending(queue)
    assert str(caught.value) == ("SQS did not take 2 of 4 messages in 6 tries, and says why: InternalError: Try again.")
    assert len(queue.asked) == 6


def test_entries_that_are_wrong_are_named_and_not_tried_again() -> None:
    queue = Queue(m1=(99, FAULT), m2=(1, AGAIN), m3=(99, FAULT))
    sent: list[int] = []
    entries = {number: {"Id": str(number)} for number in range(5)}
    with pytest.raises(BatchRefusedError) as caught:
        send_batch(queue, "url", entries, sent.append)  # type: ignore[arg-type]
    assert (caught.value.entries, caught.value.code, sent) == ([1, 3], "InvalidMessageContents", [0, 4])
    assert len(queue.asked) == 1


def test_requests_have_ten_entries_and_so_many_bytes_at_most() -> None:
    assert list(split([], 100)) == []
    assert list(split([1] * 25, 100)) == [range(0, 10), range(10, 20), range(20, 25)]
    assert list(split([60, 40, 1, 99, 100, 50], 100)) == [range(0, 2), range(2, 4), range(4, 5), range(5, 6)]
    assert list(split([5, 500, 5], 100)) == [range(0, 1), range(1, 2), range(2, 3)]


def test_of_each_group_there_is_one_in_a_round() -> None:
    assert list(rounds([])) == []
    assert list(rounds(list("aabacb"))) == [[0, 2, 4], [1, 5], [3]]
    assert list(rounds(["a"] * 3)) == [[0], [1], [2]]
    assert list(rounds(list("abc"))) == [[0, 1, 2]]
