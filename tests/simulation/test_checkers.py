"""The checkers on histories written by hand: silent for a good history, a sentence for a bad one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkers import (
    AcceptedCall,
    Snapshot,
    conservation,
    lost,
    out_of_order,
    overlap,
    repeats,
    stale_accepted,
)
from tests.support.history import History, HistoryEvent, read_history

pytestmark = pytest.mark.simulation

#: (what, seq, token, pid) of key k; a job is named after its number.
Line = tuple[str, int, int, int]


def history(*lines: Line, key: str = "k") -> list[HistoryEvent]:
    return [
        HistoryEvent(what, "" if what in "KP" else key, seq, f"{key}#{seq}", 1, token, float(number), pid)  # type: ignore[arg-type]  # one of the letters
        for number, (what, seq, token, pid) in enumerate(lines)
    ]


GOOD = history(
    ("C", -1, 1, 7),
    ("S", 0, 1, 7),
    ("E", 0, 1, 7),
    ("S", 1, 1, 7),
    ("F", 1, 1, 7),
    ("A", -1, 1, 7),
    ("C", -1, 2, 8),
    ("S", 1, 2, 8),
    ("K", -1, 0, 8),
    ("C", -1, 3, 7),
    ("S", 1, 3, 7),
    ("E", 1, 3, 7),
    ("A", -1, 3, 7),
)
ACCEPTED = [AcceptedCall("k", 0, "k#0"), AcceptedCall("k", 1, "k#1")]


def test_a_good_history_is_silent() -> None:
    assert lost(ACCEPTED, GOOD, Snapshot()) == []
    assert overlap(GOOD) == []
    assert out_of_order(GOOD) == []
    assert stale_accepted(GOOD) == []
    assert repeats(GOOD) == 1  # after the kill; the one after the failure is none


def test_what_began_and_never_ended_is_lost() -> None:
    (finding,) = lost([*ACCEPTED, AcceptedCall("k", 2, "k#2")], [*GOOD, *history(("S", 2, 4, 7))], Snapshot())
    assert "Call 2 of key k" in finding


def test_what_failed_is_lost_unless_it_is_in_the_morgue() -> None:
    events = history(("S", 0, 1, 7), ("F", 0, 1, 7))
    assert len(lost(ACCEPTED[:1], events, Snapshot())) == 1
    assert lost(ACCEPTED[:1], events, Snapshot(dead=frozenset({"k#0"}))) == []


def test_a_run_beside_another_of_its_key_overlaps() -> None:
    (finding,) = overlap(history(("S", 0, 1, 7), ("S", 0, 2, 8), ("E", 0, 1, 7), ("E", 0, 2, 8)))
    assert "call 0 began in process 8" in finding


def test_runs_of_two_keys_do_not_overlap() -> None:
    assert overlap([*history(("S", 0, 1, 7)), *history(("S", 0, 1, 7), key="other")]) == []


def test_a_kill_ends_the_runs_of_its_process_alone() -> None:
    assert overlap(history(("S", 0, 1, 7), ("K", -1, 0, 7), ("S", 0, 2, 8))) == []
    assert len(overlap(history(("S", 0, 1, 7), ("K", -1, 0, 9), ("S", 0, 2, 8)))) == 1


def test_a_run_noted_while_its_process_was_being_killed_lasts_no_longer() -> None:
    assert overlap(history(("K", -1, 0, 7), ("S", 0, 1, 7), ("S", 0, 2, 8))) == []


def test_what_a_stopped_process_goes_on_with_is_excused() -> None:
    events = history(("S", 0, 1, 7), ("P", -1, 0, 7), ("S", 0, 2, 8), ("E", 0, 1, 7), ("E", 0, 2, 8))
    assert overlap(events) == []
    assert out_of_order([*events, *history(("S", 1, 1, 7))]) == []


def test_a_call_that_overtakes_is_out_of_order() -> None:
    (finding,) = out_of_order(history(("S", 1, 1, 7), ("E", 1, 1, 7), ("S", 0, 1, 7)))
    assert "call 1 began before call 0" in finding


def test_a_call_may_begin_again_after_those_behind_it() -> None:
    assert out_of_order([*GOOD, *history(("S", 0, 9, 7))]) == []


def test_a_failed_call_holds_back_until_it_is_buried() -> None:
    failed = history(("S", 0, 1, 7), ("F", 0, 1, 7))
    assert len(out_of_order([*failed, *history(("S", 1, 1, 7))])) == 1
    assert out_of_order([*failed, *history(("B", 0, 1, 7), ("S", 1, 1, 7))]) == []


def test_an_old_token_that_was_taken_is_stale() -> None:
    (finding,) = stale_accepted(history(("C", -1, 1, 7), ("C", -1, 2, 8), ("A", -1, 1, 7)))
    assert "under token 1 was taken" in finding
    assert stale_accepted(history(("C", -1, 1, 7), ("C", -1, 2, 8), ("R", -1, 1, 7), ("A", -1, 2, 8))) == []


def test_a_claim_that_was_settled_twice_is_seen() -> None:
    assert len(stale_accepted(history(("C", -1, 1, 7), ("A", -1, 1, 7), ("A", -1, 1, 7)))) == 1


def test_conservation_adds_up() -> None:
    places = Snapshot(waiting=frozenset("a"), running=frozenset("b"), dead=frozenset("c"))
    assert conservation("abcd", "d", places) == []


@pytest.mark.parametrize(
    ("accepted", "done", "places", "finding"),
    [
        ("abcde", "d", Snapshot(frozenset("a"), frozenset("b"), frozenset("c")), "Job e was accepted, and is neither"),
        ("ab", "", Snapshot(frozenset("abx")), "Job x is there and was never accepted"),
        ("a", "", Snapshot(frozenset("a"), frozenset("a")), "Job a is in 2 places"),
        ("a", "", Snapshot(frozenset("a"), dead=frozenset("a")), "Job a is in 2 places"),
    ],
)
def test_conservation_sees_what_does_not(accepted: str, done: str, places: Snapshot, finding: str) -> None:
    (found,) = conservation(accepted, done, places)
    assert finding in found


def test_every_run_beyond_the_first_is_a_repeat() -> None:
    assert repeats(history(("S", 0, 1, 7), ("S", 0, 2, 7), ("S", 0, 3, 7))) == 2


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = History(tmp_path / "history", clock=lambda: 12.5)
    written.note("S", "a key with spaces", 3, "job/1", 2, 99)
    written.note("K", pid=42)
    written.close()
    assert read_history(tmp_path / "history") == [
        HistoryEvent("S", "a key with spaces", 3, "job/1", 2, 99, 12.5, os.getpid()),
        HistoryEvent("K", t=12.5, pid=42),
    ]


def test_a_line_that_a_kill_has_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "history").write_text(HistoryEvent("K", pid=1).line() + "\nS k 1")
    assert read_history(tmp_path / "history") == [HistoryEvent("K", pid=1)]


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("hello\n")
    with pytest.raises(ValueError, match="not a line"):
        read_history(tmp_path / "history")


def test_lines_of_several_processes_survive_a_kill_and_do_not_mix(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from tests.support.history import History\n"
        "history = History(sys.argv[1])\n"
        "for number in range(500): history.note('S', 'k' * 50, number)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "history"
    processes = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(3)]
    assert {process.wait(60) for process in processes} == {-9}
    assert len(read_history(path)) == 1_500
