"""The board: which runs are on it, and how it notices that a job closed the descriptors of its process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from laneway import sentinel
from laneway.jobs.data import StartedRun
from laneway.sentinel import Sentinel
from laneway.worker.process.board import Board


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board.make(2)
    yield board
    board.close()


RUN = StartedRun("default", "a", 7)


def test_a_run_stands_there_until_it_has_ended(board):
    slot = board.begin([RUN])
    assert board.started() == [RUN]
    board.end(slot)
    assert board.started() == []


@pytest.mark.parametrize("number", [0, 1], ids=["low", "high"])
@pytest.mark.parametrize("reused", [None, os.devnull, __file__])
def test_a_run_that_has_closed_a_descriptor_stays_there(board, monkeypatch, number, reused):
    class Ended(Exception): ...

    def end() -> None:
        raise Ended

    watching = Sentinel()
    monkeypatch.setattr(sentinel, "_sentinel", watching)
    board.on_closed = end
    slot, fd = board.begin([RUN]), watching._fds[number]
    ours = os.dup(fd)
    if reused is None:
        os.close(fd)
    else:
        other = os.open(reused, os.O_RDONLY)
        os.dup2(other, fd)
        os.close(other)
    with pytest.raises(Ended):
        board.end(slot)
    assert board.started() == [RUN]
    os.dup2(ours, fd)
    os.close(ours)
    watching.close()
