"""The board: what stands on it, and how it notices that a job has closed the descriptors of its process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from laneway.job import Started
from laneway.worker.board import Board


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board.make(2)
    ours = os.dup(board.fd)
    yield board
    os.dup2(ours, board.fd)  # whatever has become of it
    os.close(ours)
    board.close()


RUN = Started("default", "a", 7)


def test_a_run_stands_there_until_it_has_ended(board):
    slot = board.begin([RUN])
    assert board.started() == [RUN]
    board.end(slot)
    assert board.started() == []


@pytest.mark.parametrize("reused", [None, os.devnull, __file__])
def test_a_run_that_has_closed_the_descriptor_stays_there(board, reused):
    class Ended(Exception): ...

    def end() -> None:
        raise Ended

    board.on_closed = end
    slot = board.begin([RUN])
    os.close(board.fd)
    if reused is not None:
        other = os.open(reused, os.O_RDONLY)
        if other != board.fd:  # another thread has opened something meanwhile
            os.dup2(other, board.fd)
            os.close(other)
    with pytest.raises(Ended):
        board.end(slot)
    assert board.started() == [RUN]
