"""RecordingBroker: notes which keys a broker handed out, which settlements it took, and which payloads are done.

It stands next to the real broker, below the FaultyBroker that loses requests and answers, so that its notes are the
truth and not a worker's belief.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

from laneway.broker import Answer, Broker, Turn
from laneway.clock import Clock
from laneway.jobs.data import Kind
from laneway.jobs.settlement import Settlement
from tests.support.history import HistoryEvent, What

#: Within so many seconds all workers stop claiming from a paused queue, where they learn of a pause as late as others
#: learn of its numbers.
LATE_S = 10.0


class Ledger:
    """What all participants of a simulation have done, in order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.events: list[HistoryEvent] = []
        #: Identities of payloads whose end the broker has taken.
        self.done: set[str] = set()
        self.refused = 0
        #: From when on nothing of a queue may be handed out, on the monotonic clock.
        self._paused: dict[str, float] = {}
        #: What was handed out even so, a sentence each.
        self.findings: list[str] = []
        self.paused_turns = 0
        self._turns: set[tuple[str, str, int]] = set()

    def note(self, what: What, key: str = "", job: str = "", *, attempt: int = 0, token: int = 0, pid: int = 0) -> None:
        """Write one event; the number of a call is the end of its job's name."""
        number = job.rpartition("#")[2]
        seq = int(number) if "#" in job else -1
        self.events.append(HistoryEvent(what, key, seq, job, attempt, token, self._clock.now(), pid))

    def turned(self, turn: Turn, answer: Answer) -> None:
        """Note a turn that was carried out; its repeat has changed nothing."""
        name = turn.worker, turn.queue, turn.seq
        if name in self._turns:
            return
        self._turns.add(name)
        paused = self._clock.monotonic() >= self._paused.get(turn.queue, inf)
        self.paused_turns += paused
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
            if paused:
                self.findings.append(f"The key {claim.key} was handed out while {turn.queue} was paused.")
            self.note("C", claim.key, token=claim.token)

    def pause(self, queue: str, within_s: float) -> None:
        """From then on nothing of the queue may be handed out."""
        self._paused.setdefault(queue, self._clock.monotonic() + within_s)

    def resume(self, queue: str) -> None:
        """Anything may be handed out again."""
        self._paused.pop(queue, None)

    def interrupted(self, turn: Turn) -> None:
        """Note what may be settled, though the turn failed: not every broker's turn is a transaction."""
        for settlement in turn.settlements:
            self._ended(settlement)

    def _settled(self, settlement: Settlement) -> None:
        self.note("A", settlement.claim.key, token=settlement.claim.token)
        self._ended(settlement)

    def _ended(self, settlement: Settlement) -> None:
        claim = settlement.claim
        finished = len(claim.payloads) if settlement.verdict == "done" else settlement.done
        self.done.update(each.identity or claim.key for each in claim.payloads[:finished])
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
        try:
            answer = self.inner.turn(turn)
        except BaseException:
            if not self.capabilities.has("unique_keys"):
                self._ledger.interrupted(turn)
            raise
        self._ledger.turned(turn, answer)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class RecordingOperate:
    """The operate tier of a RecordingBroker."""

    def __init__(self, broker: Broker, ledger: Ledger) -> None:
        self._inner = broker.operate
        self._late_s = 0.0 if broker.capabilities.has("exact_counts") else LATE_S
        self._ledger = ledger

    def pause(self, queue: str) -> bool:
        self._ledger.pause(queue, self._late_s)
        return self._inner.pause(queue)

    def resume(self, queue: str) -> bool:
        self._ledger.resume(queue)
        return self._inner.resume(queue)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._inner, verb)
