"""The operator's steps of the state machine: cancel, reschedule, bury, revive, pause and reshard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import note

from laneway.broker import Broker
from laneway.clock import ManualClock
from laneway.errors import ConfigError
from laneway.jobs.data import Kind
from tests.support import model_operate
from tests.support.choices import EVERYWHERE, KINDS, PAYLOADS, QUEUES, Choices, Name, due, identity
from tests.support.model import KeyState
from tests.support.reference import ReferenceBroker, same


class OperateSteps:
    """A part of the machine."""

    broker: Broker
    clock: ManualClock
    reference: ReferenceBroker

    def _name(self, choices: Choices, apt: Callable[[KeyState], object]) -> Name:
        """A key; mostly one of those that are apt for what is to be done."""
        if choices.below(4):
            return choices.of([name for name in EVERYWHERE if apt(self.reference.state(*name))] or EVERYWHERE)
        return choices.of(EVERYWHERE)

    def _payload(self, name: Name, choices: Choices) -> str | None:
        """The identity of one of the key's payloads, wherever it may be; None: the job as a whole."""
        if KINDS[name] is Kind.PLAIN or not choices.below(3):
            return None
        queued = [entry.identity for entry in self.reference.state(*name).queued]
        return choices.of(queued) if queued and choices.below(4) else identity(name, choices.below(PAYLOADS))

    def _cancel(self, how: Choices, more: Choices) -> Iterable[Name]:
        name = self._name(how, lambda state: state.queued)
        which = self._payload(name, how)
        note(("cancel", name, which))
        expected = self.reference.act(*name, lambda state: model_operate.cancel(state, which))
        same(f"cancel{(*name, which)}", self.broker.cancel(*name, which), expected)
        return [name]

    def _reschedule(self, how: Choices, more: Choices) -> Iterable[Name]:
        name = self._name(how, lambda state: state.queued)
        which, (delay_s, at) = self._payload(name, how), due(how)
        if KINDS[name] is Kind.COLLECTING and which not in {
            each.identity for each in self.reference.state(*name).queued
        }:
            which = None
        note(("reschedule", name, which, delay_s, at))
        then = self.clock.now() + delay_s if at is None else at
        expected = self.reference.act(*name, lambda state: model_operate.reschedule(state, which, then))
        moved = self.broker.reschedule(*name, which, delay_s=delay_s, perform_at=at)
        same(f"reschedule{(*name, which)}", moved, expected)
        return [name]

    def _act(self, how: Choices, more: Choices) -> Iterable[Name]:
        """What can be done to many keys at once."""
        now = self.clock.now()
        steps: tuple[tuple[str, Callable[[Any], Any]], ...] = (
            ("revive", lambda state: model_operate.revive(state, now)),
            ("run_now", lambda state: model_operate.run_now(state, now)),
            ("bury_failed", lambda state: model_operate.bury_failed(state, now)),
            ("revive", lambda state: model_operate.revive(state, now)),
            ("delete_failed", lambda state: model_operate.delete_failed(state, now)),
            ("delete_dead", model_operate.delete_dead),
        )
        verb, step = how.of(steps)
        queue, key = self._name(how, step)
        keys = [key for name, key in EVERYWHERE if name == queue] if how.below(4) == 3 else [key]
        note((verb, queue, keys))
        expected = self.reference.act_on_all(queue, keys, step)
        same(f"{verb}({queue!r}, {keys})", getattr(self.broker.operate, verb)(queue, keys), expected)
        return [(queue, key) for key in keys]

    def _pause(self, how: Choices, more: Choices) -> Iterable[Name]:
        return self._set_paused("pause", how.of((*QUEUES, "nowhere")))

    def _resume(self, how: Choices, more: Choices) -> Iterable[Name]:
        paused = [name for name, known in self.reference.queues.items() if known.paused]
        return self._set_paused("resume", how.of(paused or (*QUEUES, "nowhere")))

    def _set_paused(self, verb: str, queue: str) -> Iterable[Name]:
        note((verb, queue))
        expected = self.reference.set_paused(queue, paused=verb == "pause")
        same(f"{verb}({queue!r})", getattr(self.broker.operate, verb)(queue), expected)
        return ()

    def _reshard(self, how: Choices, more: Choices) -> Iterable[Name]:
        queue, shards, limit = how.of(QUEUES), 1 + how.below(4), how.of((1_000, 2, 1))
        return self._move(queue, shards, limit)

    def _move(self, queue: str, shards: int, limit: int) -> Iterable[Name]:
        note(("reshard", queue, shards, limit))
        try:
            step = self.broker.shards.reshard(queue, shards, limit=limit)
        except ConfigError:
            step = None
        self.reference.reshard(queue, shards, step)
        return [name for name in EVERYWHERE if name[0] == queue]
