"""ClusterTurns: the verb `turn` on a Cluster: two steps per shard, sent to all shards at once.

The first step settles, and reports the due jobs and the token of the shard. `choose` then decides here which jobs
are claimed from which shard and in which order, by the rule of `claim` in scripts/parts/claiming.lua, which decides
on one server. The second step claims them under one token. Each shard remembers both steps, so a turn may be
repeated from any point: a settled claim is not settled again, and once a shard has claimed for a turn, a repeat gets
only those claims.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from ...broker import Answer, Turn
from ...errors import BrokerError, LeaseLost
from ...jobs.data import Claim, Kind, NewJob
from ...jobs.settlement import Settlement
from ..shared import another_kind
from .client.errors import StaleLayoutError
from .cluster_enqueue import ClusterJobWriter
from .codec import claim_of
from .layout import Layout, Layouts
from .outbox import ClusterOutbox, OutboxEntry, text_of
from .script import load
from .turn import dead, end_of, in_order, late, take_turn
from .wakeup import wake_calls

#: Priority, due time and arrival of a job.
Due = tuple[int, float, int]


def choose(shards: Sequence[Sequence[Due]], limit: int, batch: int, in_order: bool) -> list[list[int]]:
    """For each shard, the places that its jobs get among the claims of the turn, from 1 on.

    What is due in a shard stands in the order in which it is handed out there.
    """
    places: list[list[int]] = [[] for _ in shards]
    by_priority = [{level: list(jobs) for level, jobs in groupby(shard, itemgetter(0))} for shard in shards]
    taken = 0
    for level in sorted({level for shard in by_priority for level in shard}, reverse=True):
        lanes = [_DueJobs(shard.get(level, ()), mine) for shard, mine in zip(by_priority, places, strict=True)]
        while taken < limit and (due := [lane for lane in lanes if lane.head is not None]):
            for lane in due if in_order else [min(due, key=_DueJobs.urgency)]:
                taken += lane.take(min(max(batch, 1), limit - taken), taken)
    return places


class _DueJobs:
    """What one shard has of one priority."""

    def __init__(self, due: Iterable[Due], places: list[int]) -> None:
        self._due = iter(due)
        self._places = places
        self.head = next(self._due, None)

    def urgency(self) -> tuple[float, int]:
        assert self.head is not None
        return self.head[1:]

    def take(self, most: int, taken: int) -> int:
        """Take up to so many; returns how many there were."""
        count = 0
        while count < most and self.head is not None:
            count += 1
            self._places.append(taken + count)
            self.head = next(self._due, None)
        return count


#: What one turn brings at most: both sides must hold it in memory.
_CLAIM_CHARS = 16_000_000

_read_due = msgspec.msgpack.Decoder(list[float]).decode


class _ShardRequest:
    """What a turn says to one shard."""

    def __init__(self, tag: str, *, is_gone: bool = False) -> None:
        self.tag = tag
        #: Whether the queue has other shards now: then it only says what it has said before.
        self.is_gone = is_gone
        #: Keys of which all was done, and that send nothing: by token.
        self.groups: dict[int, list[str]] = {}
        self.others: list[Sequence[object]] = []
        #: What the others were made from: their places among the settlements of the turn.
        self.sources: list[int] = []
        #: What is sent by them.
        self.outbox: list[OutboxEntry] = []

    def keys(self) -> list[bytes]:
        """All that are spoken of."""
        finished = [key for keys in self.groups.values() for key in keys]
        return [key.encode() for key in (*finished, *(str(other[1]) for other in self.others))]

    def args(self) -> dict[str, object]:
        return {
            "finished": [(1, token, keys) for token, keys in self.groups.items()],
            "settlements": self.others,
        }


class _ShardReply:
    """What a shard answered to the first step."""

    def __init__(self, answer: Sequence[Any]) -> None:
        _, self.token, self.claimed, self.refused, self.resharding, self.woken, due, self.again, *self.claims = answer
        told = iter(_read_due(due))
        self.due: list[Due] = [(int(level), at, int(seq)) for level, at, seq in zip(told, told, told, strict=True)]


class ClusterTurns:
    """Turns on a Cluster."""

    def __init__(self, layouts: Layouts, storing: ClusterJobWriter, outbox: ClusterOutbox) -> None:
        self._layouts = layouts
        self._storing = storing
        self._outbox = outbox
        self._lock = threading.Lock()
        #: The largest token that this process has given.
        self._token = 0
        #: Workers and queues of turns whose second step was begun, and may not have been answered.
        self._begun: set[tuple[str, str]] = set()

    def turn(self, turn: Turn) -> Answer:
        turn.on_sent()  # it takes several steps, on several servers
        try:
            answer = take_turn(self._layouts, turn, self._take)
        except LeaseLost:
            self._begun.discard((turn.worker, turn.queue))  # nobody claims anything for it any more
            raise
        self._begun.discard((turn.worker, turn.queue))
        return answer

    def _take(self, turn: Turn, layout: Layout, used: dict[str, Layout], is_fresh: bool) -> Answer:
        wanted = _wanted(turn, layout.tags)
        limit = turn.limit if turn.epoch in (0, layout.epoch) else 0
        first = wanted[0] if wanted else layout.tags[0]
        shards_told = self._requests(turn, first, used)
        self._check(turn, shards_told)
        told = {tag: shard for tag, shard in shards_told.items() if not shard.is_gone}
        gone = [shard for shard in shards_told.values() if shard.is_gone]
        refused = self._refused_before(turn, gone) if gone else []
        said, woken = self._settle(turn, told, wanted, limit, first)
        refused += [key for shard in said.values() for key in shard.refused]
        # What is stored may be newer than what a shard has been told.
        resharding = max(layout.record.resharding, *(said[tag].resharding for tag in {first, *wanted}))
        if resharding and not layout.next_tags and not is_fresh:
            raise StaleLayoutError  # it is not known which shards must remember this
        token, claims = self._claim(turn, layout, said, wanted, 0 if resharding else limit, woken)
        return Answer(
            claims,
            token,
            in_order(refused, turn.settlements) if refused else [],
            layout.epoch,
            layout.shards,
            resharding,
        )

    # -- the first step --------------------------------------------------------------------------------

    def _requests(self, turn: Turn, first: str, used: dict[str, Layout]) -> dict[str, _ShardRequest]:
        """What is said to each shard."""
        told = {first: _ShardRequest(first)}
        arrival = self._storing.arrivals.take(len(turn.settlements))
        for number, settlement in enumerate(turn.settlements):
            claim = settlement.claim
            layout = used.get(claim.queue)
            if layout is None:
                layout = used[claim.queue] = self._layouts.get(claim.queue)
            tag = self._layouts.keys.tag(claim.queue, claim.ref, claim.shard)
            shard = told.get(tag)
            if shard is None:
                shard = told[tag] = _ShardRequest(tag, is_gone=tag not in layout.tags)
            if settlement.verdict == "done" and not settlement.outbox:
                shard.groups.setdefault(claim.token, []).append(claim.key)
                continue
            entries = self._outbox.entries(tag, f"{_sender(turn)}{number}", settlement.outbox or ())
            shard.outbox += entries
            shard.sources.append(number)
            shard.others.append(_settlement(settlement, entries, arrival + number))
        return told

    def _refused_before(self, turn: Turn, gone: Sequence[_ShardRequest]) -> list[bytes]:
        """The keys that are refused of those whose shard does not exist any more. Either this turn was taken while it
        did, and is repeated; or somebody has taken the claims back before the queue was resharded."""
        args = {shard.tag: {**shard.args(), "floor": 0, "peek": 0} for shard in gone}
        refused: list[bytes] = []
        for shard, answer in zip(gone, self._ask("settle", turn, args), strict=True):
            if isinstance(answer, BrokerError):
                raise answer
            if answer[0] == b"ok":
                refused += answer[3]
            else:
                refused += answer[1] if answer[0] == b"closed" else shard.keys()
        return refused

    def _check(self, turn: Turn, told: Mapping[str, _ShardRequest]) -> None:
        """Refuse the turn, before anything of it is settled, if something that its runs have sent cannot be stored."""
        ignored: set[int] = set()
        while True:
            sent: list[tuple[int, NewJob]] = [
                (number, job)
                for number, settlement in enumerate(turn.settlements)
                if number not in ignored
                for job in settlement.outbox or ()
            ]
            if all(job.kind is Kind.PLAIN for _, job in sent):
                return
            ending = {
                shard.tag: [part for other in shard.others if other[3] in ("done", "bury") for part in other[1:3]]
                + [part for token, keys in shard.groups.items() for key in keys for part in (key, token)]
                for shard in told.values()
            }
            refused = self._storing.check([job for _, job in sent], turn.worker, ending)
            if refused is None:
                return
            number, job = sent[refused[0]]
            if self._is_held(turn, told, number):
                raise another_kind(job, refused[1])
            # It was settled before, or never will be: what it has sent is not sent now.
            ignored.add(number)

    def _is_held(self, turn: Turn, told: Mapping[str, _ShardRequest], number: int) -> bool:
        for tag, shard in told.items():
            if number in shard.sources and not shard.is_gone:
                args = {**shard.args(), "look": True, "floor": 0, "peek": 0}
                answer = self._call("settle", turn, {tag: args})[tag]
                return shard.sources.index(number) + 1 in answer[1:]
        return False

    def _settle(
        self, turn: Turn, told: Mapping[str, _ShardRequest], wanted: Sequence[str], limit: int, first: str
    ) -> tuple[dict[str, _ShardReply], set[str]]:
        """Settle, and find out what is due, including what the runs have sent, which is delivered in between. Also
        returns the queues into which something was put back."""
        outbox = [entry for shard in told.values() for entry in shard.outbox]
        shared = {"floor": self._token, "peek": 0 if outbox else limit}
        calls: dict[str, dict[str, object]] = {
            tag: {**shard.args(), **shared, "remember": tag == first} for tag, shard in told.items()
        }
        nothing = {"finished": (), "settlements": ()}
        if not outbox:
            calls |= {tag: {**nothing, **shared} for tag in wanted if tag not in told}
        said = {tag: _ShardReply(answer) for tag, answer in self._call("settle", turn, calls).items()}
        woken = {_queue(tag) for tag, shard in said.items() if shard.woken}
        if outbox:
            self._deliver(turn, told, said)
            # What was settled just now is remembered: this only looks.
            looks = {tag: {**nothing, "floor": self._token, "peek": limit} for tag in dict.fromkeys((first, *wanted))}
            for tag, answer in self._call("settle", turn, looks).items():
                now = _ShardReply(answer)
                now.refused = said[tag].refused if tag in said else []
                said[tag] = now
        return said, woken

    def _deliver(self, turn: Turn, told: Mapping[str, _ShardRequest], said: Mapping[str, _ShardReply]) -> None:
        """Deliver what the runs have sent that are settled now, in the order of the settlements."""
        ids: list[tuple[str, str]] = []
        try:
            for tag, shard in told.items():
                if said[tag].again and shard.outbox:  # what lies there may have been divided otherwise
                    ids += [(tag, id) for id in self._outbox.ids(tag, _sender(turn))]
                else:
                    ids += [(tag, entry.id) for entry in shard.outbox]
            # Of a run that was refused, or settled long ago, nothing is there.
            self._outbox.deliver(sorted(self._outbox.still_there(ids), key=_place))
        except BrokerError:
            pass  # it is in the outbox: whoever sweeps next delivers it

    # -- the second step -------------------------------------------------------------------------------

    def _claim(
        self,
        turn: Turn,
        layout: Layout,
        said: Mapping[str, _ShardReply],
        wanted: Sequence[str],
        limit: int,
        woken: set[str],
    ) -> tuple[int, list[Claim]]:
        """The token of the turn, and its claims in order."""
        claimed = {tag: shard for tag, shard in said.items() if shard.claimed}
        found: dict[str, tuple[int, Sequence[Any]]] = {}
        if claimed:
            # A repeat. Of an earlier try that got no further, only the last one counts; what another one may have
            # claimed is given back when the worker renews, because nobody knows of it.
            token = max(shard.token for shard in claimed.values())
            found = {tag: (shard.token, shard.claims) for tag, shard in claimed.items()}
            places: dict[str, list[int]] = {tag: [] for tag in wanted if tag not in claimed}
        elif limit == 0 or not wanted:
            token = said[wanted[0] if wanted else layout.tags[0]].token  # which is remembered
            with self._lock:
                self._token = max(self._token, token)
            # While the queue is being resharded nothing is claimed, nor is it when this is repeated afterwards.
            heirs = _wanted(turn, layout.next_tags)
            places = {tag: [] for tag in (*wanted[:1], *heirs[:1])} if turn.limit else {}
        else:
            token = self._next_token(*(shard.token for shard in said.values()))
            chosen = choose([said[tag].due for tag in wanted], limit, turn.batch, turn.in_order)
            # The first remembers that the turn is over, also if nothing is due.
            places = {tag: some for tag, some in zip(wanted, chosen, strict=True) if some or tag == wanted[0]}
            if sum(map(len, chosen)) >= limit:
                woken.add(layout.queue)  # there may be more, and somebody else who is idle
        if (turn.worker, turn.queue) in self._begun:
            # A call of the try before may still be on its way, to any shard. It must come too late.
            places = {tag: [] for tag in wanted if tag not in claimed} | places
        self._begun.add((turn.worker, turn.queue))
        shared = {
            "token": token,
            "max_payloads": turn.max_payloads,
            "chars": _CLAIM_CHARS // max(1, sum(map(bool, places.values()))),
        }
        calls = {tag: {**shared, "places": some} for tag, some in places.items()}
        for tag, answer in self._call("take", turn, calls, woken).items():
            found[tag] = answer[1], answer[3:]
        handed_out = [
            (place, layout.shard(tag), key, blob)
            for tag, (under, claims) in found.items()
            if under == token
            for key, place, blob in zip(claims[::3], claims[1::3], claims[2::3], strict=True)
        ]
        handed_out.sort()
        return token, [claim_of(layout.queue, layout.epoch, shard, key, blob) for _, shard, key, blob in handed_out]

    def _next_token(self, *least: int) -> int:
        """The largest of what the shards have proposed; in this process no two turns get the same."""
        with self._lock:
            self._token = max(*least, self._token + 1)
            return self._token

    # -- calls -----------------------------------------------------------------------------------------

    def _call(
        self, script: str, turn: Turn, calls: Mapping[str, Mapping[str, object]], woken: Iterable[str] = ()
    ) -> dict[str, list[Any]]:
        """Call a script for each tag; a worker that a shard does not know is made known there, if it is alive. Rings
        for the queues that are `woken`."""
        server = self._layouts.server
        answers: dict[str, list[Any]] = {}
        for last in (False, True):
            left = {tag: args for tag, args in calls.items() if tag not in answers}
            for tag, answer in zip(left, self._ask(script, turn, left, () if last else woken), strict=True):
                if isinstance(answer, BrokerError):
                    raise answer
                if answer[0] in (b"stale", b"closed"):
                    raise StaleLayoutError
                if answer[0] == b"late":
                    raise late(turn.worker)
                if answer[0] != b"unknown":
                    answers[tag] = answer
            unknown = [tag for tag in left if tag not in answers]
            if not unknown:
                break
            if last or not server.do("HEXISTS", self._layouts.keys.leases, turn.worker):
                raise dead(turn.worker)
            args = self._layouts.args(worker=turn.worker)
            server.run_all([(load("admit"), [tag], [args]) for tag in unknown])
        return answers

    def _ask(
        self, script: str, turn: Turn, calls: Mapping[str, Mapping[str, object]], woken: Iterable[str] = ()
    ) -> list[Any]:
        """What a script answers for each tag, or the BrokerError in its place."""
        packed = [self._layouts.args(worker=turn.worker, seq=turn.seq, **args) for args in calls.values()]
        asked = [(load(script), [tag], [args]) for tag, args in zip(calls, packed, strict=True)]
        return self._layouts.server.try_all([*asked, *wake_calls(self._layouts, woken)])[: len(asked)]


def _wanted(turn: Turn, tags: Sequence[str]) -> list[str]:
    """Those of a queue's shards from which a turn wants to claim, in its order."""
    shards = range(len(tags)) if turn.shards is None else dict.fromkeys(turn.shards)
    return [tags[shard] for shard in shards if 0 <= shard < len(tags)]


def _settlement(settlement: Settlement, entries: Sequence[OutboxEntry], arrival: int) -> Sequence[object]:
    """A settlement as the script takes it."""
    return (*end_of(settlement, 1), None, [part for entry in entries for part in (entry.id, text_of(entry))], arrival)


def _sender(turn: Turn) -> str:
    """What the names of all that a turn sends begin with."""
    return f"{turn.worker}:{turn.queue}:{turn.seq}:"


def _place(entry: OutboxEntry) -> tuple[int, int]:
    """Where an entry stands among all that a turn sends."""
    *_, settlement, part, _ = entry.id.split(":")
    return int(settlement), int(part)


def _queue(tag: str) -> str:
    return tag.split(":")[-3]
