"""RecordingBroker: notes which keys a broker handed out, which settlements it took, and which payloads are done.

It stands next to the real broker, below the FaultyBroker that loses requests and answers, so that its notes are the
truth and not a worker's belief.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from laneway.broker import Answer, Broker, Turn
from laneway.jobs.data import Kind
from laneway.jobs.settlement import Settlement
from tests.support.history import HistoryEvent, What


class Ledger:
    """What all participants of a simulation have done, in order."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.events: list[HistoryEvent] = []
        #: Identities of payloads whose end the broker has taken.
        self.done: set[str] = set()
        self.refused = 0
        #: Queues of which nothing may be handed out, and what was even so, a sentence each.
        self.paused: set[str] = set()
        self.findings: list[str] = []
        self.paused_turns = 0
        self._turns: set[tuple[str, str, int]] = set()

    def note(self, what: What, key: str = "", job: str = "", *, attempt: int = 0, token: int = 0, pid: int = 0) -> None:
        """Write one event; the number of a call is the end of its job's name."""
        number = job.rpartition("#")[2]
        seq = int(number) if "#" in job else -1
        self.events.append(HistoryEvent(what, key, seq, job, attempt, token, self._clock(), pid))

    def turned(self, turn: Turn, answer: Answer) -> None:
        """Note a turn that was carried out; its repeat has changed nothing."""
        name = turn.worker, turn.queue, turn.seq
        if name in self._turns:
            return
        self._turns.add(name)
        self.paused_turns += turn.queue in self.paused
        refused = Counter(answer.refused)
        for settlement in sorted(turn.settlements, key=lambda each: each.claim.token):
            key = settlement.claim.key
            if refused[key]:  # of two claims of one key it is the older that is refused
                refused[key] -= 1
                self.refused += 1
                self.note("R", key, token=settlement.claim.token)
            else:
                self._settled(settlement)
        for claim in answer.claims:
            if turn.queue in self.paused:
                self.findings.append(f"The key {claim.key} was handed out while {turn.queue} was paused.")
            self.note("C", claim.key, token=claim.token)

    def _settled(self, settlement: Settlement) -> None:
        claim = settlement.claim
        self.note("A", claim.key, token=claim.token)
        finished = len(claim.payloads) if settlement.verdict == "done" else settlement.done
        self.done.update(each.identity for each in claim.payloads[:finished])
        buried = claim.payloads[finished:][: settlement.buried] if settlement.verdict == "bury" else []
        for payload in buried if claim.kind is Kind.KEYED else ():
            self.note("B", claim.key, payload.identity, token=claim.token)


class RecordingBroker:
    """Passes every verb on to a broker, and notes what its turns and pauses have done."""

    def __init__(self, broker: Broker, ledger: Ledger) -> None:
        self.inner = broker
        self.capabilities = broker.capabilities
        self.operate = RecordingOperate(broker, ledger)
        self._ledger = ledger

    def turn(self, turn: Turn) -> Answer:
        answer = self.inner.turn(turn)
        self._ledger.turned(turn, answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class RecordingOperate:
    """The operate tier of a RecordingBroker."""

    def __init__(self, broker: Broker, ledger: Ledger) -> None:
        self._inner = broker.operate
        self._ledger = ledger

    def pause(self, queue: str) -> bool:
        self._ledger.paused.add(queue)
        return self._inner.pause(queue)

    def resume(self, queue: str) -> bool:
        self._ledger.paused.discard(queue)
        return self._inner.resume(queue)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)
