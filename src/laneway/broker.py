"""The broker contract: what a broker must do and may do. The implementations are in `brokers/`.

A broker has three parts:

- `Capabilities`: one frozen value that says how the broker works and which features it lacks, each with a reason.
- The core verbs, of `CoreBroker`: they take jobs in, hand them to workers and settle them.
- Tiers, of `Broker`: `inspect`, `operate`, `events`, `shards` and `health` are objects with the other verbs. A broker
  may lack a tier. `Capabilities.lacks` is the one place that says so.

Each verb is one transaction: all of it happens or none of it. Every verb may be repeated after its answer was lost.
`now` is the broker's own clock. The core decides, and the broker stores the decision. `complete` checks a broker when
the app opens it. `laneway.testing.conformance` tests any broker, and docs/writing-a-broker.md shows how to write one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from inspect import Signature, iscoroutinefunction, isroutine, signature
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

import msgspec

from .config import TaskOptions
from .errors import BrokerRefusedError, ConfigError
from .events.event import Subscription
from .jobs.data import Claim, JobView, Kind, NewJob, QueueStats, StartedRun, Status, WorkerView
from .jobs.settlement import Settlement

if TYPE_CHECKING:
    from .app import Laneway

#: The largest body in bytes, unless a broker says otherwise.
MAX_BODY = 1_048_576

#: Which jobs a listing shows; `delayed` and `retries` are parts of `queued`.
Listing = Literal["queued", "delayed", "retries", "running", "dead"]
#: What a listing is sorted by. Ties: by due time (dead: burial), then arrival. `updated_at` is for dead jobs alone,
#: `perform_at` and `retry_count` are for the other listings; dead and running jobs have no order by `retry_count`.
Order = Literal["perform_at", "key", "retry_count", "updated_at"]


# -- capabilities --------------------------------------------------------------------------------------

Tier = Literal["inspect", "operate", "events", "shards", "health"]
TIERS: tuple[Tier, ...] = get_args(Tier)

#: What a broker may lack: a whole tier, or a part of one. The conformance tests of a feature name it.
Feature = Literal[
    Tier,
    "keyed",
    "collecting",
    "priorities",
    "exact_counts",
    "sharding",
    "queued_jobs",
    "unique_keys",
    "due_order",
    "large_claims",
    "leases",
    "control_characters",
]
#: Each feature in words, as the table in docs/brokers.md shows it.
FEATURES: dict[Feature, str] = {
    "inspect": "counting and listing jobs, queues and workers",
    "operate": "burying, reviving, deleting and running jobs at once; pausing queues",
    "events": "events: a copy for each listener, filters",
    "shards": "changing the shard count of a queue in use",
    "health": "checking and mending the broker",
    "keyed": "keyed tasks: calls of one key in order, one at a time",
    "collecting": "collecting tasks: payloads of one key gathered and run together",
    "priorities": "priorities: of two due jobs the higher one first",
    "exact_counts": "numbers of a queue that are right at any moment",
    "sharding": "shards: `declare` keeps their number, and a turn claims from those that it names",
    # Without it: delayed calls of a key, delayed jobs that are `cancellable`, and dead jobs.
    "queued_jobs": "finding and listing every job; cancelling and moving every queued one",
    # Without it a plain job may be stored twice, and what is revived does not merge with what is queued.
    "unique_keys": "a key is in a queue once",
    "due_order": "what is due earlier is claimed earlier, whatever came first",
    "large_claims": "all due calls of a key in one claim",
    # `declare_dead` and `reclaim`. What a worker gives back unsettled counts as handed out.
    "leases": "claims that last until another worker ends the lease of their holder",
    "control_characters": "control characters in bodies and headers",
}

#: A sentence for a task that the broker cannot serve; None: it can.
Refusal = Callable[[TaskOptions, Kind], str | None]


#: The kinds of jobs that a broker may lack.
_KINDS: dict[Kind, Feature] = {Kind.KEYED: "keyed", Kind.COLLECTING: "collecting"}


def _is_number(value: object, kind: type[int] | type[float], least: int) -> bool:
    kinds = (int,) if kind is int else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= least


def _wrong_sentences(name: str, sentences: object) -> Iterator[str]:
    if not isinstance(sentences, Mapping):
        yield f"{name} is a mapping to sentences, not {sentences!r}"
        return
    for what, sentence in sentences.items():
        if not isinstance(sentence, str) or not sentence.strip():
            yield f"{name} has no sentence for {what!r}"


class SettleBatch(msgspec.Struct, frozen=True):
    """How many settlements a worker collects before a turn takes them along, for a broker that counts requests."""

    #: A turn waits for this many, unless the first of them has waited for `seconds`. It claims as many at a time.
    count: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not _is_number(self.count, int, 1) or not _is_number(self.seconds, float, 0):
            raise ConfigError(
                f"A SettleBatch has a count from 1 and seconds from 0, not {self.count!r} and {self.seconds!r}."
            )


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker works, and what it lacks."""

    #: Whether other processes that open the same URL see the same jobs.
    shared: bool
    #: Whether other workers may reach the broker while this process cannot, and take over its jobs. A supervisor that
    #: is cut off then ends its children before their lease runs out. A turn waits for the network, so runs go on
    #: meanwhile.
    remote: bool = False
    #: The largest body in bytes.
    max_body: int = MAX_BODY
    #: Whether a missing queue is made on first use. On SQS the operator makes queues, because they cost money. Then
    #: `health.check(app)` reports what the queues and the listeners of the app lack.
    makes_queues: bool = True
    #: Whether only the process that holds a claim can renew it, as on SQS, where a message stays hidden as long as its
    #: receiver says so. A supervisor then renews nothing, and watches the renewals of its children.
    holders_keep: bool = False
    #: Whether the broker makes the copies of an event itself, as SNS does: it takes one job for the topic.
    relays: bool = False
    #: Whether the ids of jobs that a run enqueues come from the run's own id: a repeated run sends the same jobs.
    derives_ids: bool = False
    settle_batch: SettleBatch = SettleBatch()
    #: Seconds of work that a worker fetches ahead.
    ahead_s: float = 0.02
    #: How many jobs of a queue run before the next queue has its turn; None: as many as run in about 20 ms.
    weight: int | None = None
    #: What the broker refuses beyond the features that it lacks.
    refusal: Refusal | None = None
    #: The features that it lacks, each with a sentence that says why and what to use instead.
    lacks: Mapping[Feature, str] = {}
    #: What it does only in part, or only if the operator provides for it; each in words, for the table in the docs.
    conditions: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if problems := [f"Capabilities: {problem}." for problem in self._problems()]:
            raise ConfigError(" ".join(problems))

    def _problems(self) -> Iterator[str]:
        flags = {
            "shared": self.shared,
            "remote": self.remote,
            "makes_queues": self.makes_queues,
            "holders_keep": self.holders_keep,
            "relays": self.relays,
            "derives_ids": self.derives_ids,
        }
        yield from (f"{name} is True or False, not {flag!r}" for name, flag in flags.items() if type(flag) is not bool)
        if not _is_number(self.max_body, int, 1):
            yield f"max_body is a number of bytes from 1, not {self.max_body!r}"
        if not isinstance(self.settle_batch, SettleBatch):
            yield f"settle_batch is a SettleBatch, not {self.settle_batch!r}"
        if not _is_number(self.ahead_s, float, 0):
            yield f"ahead_s is a number of seconds from 0, not {self.ahead_s!r}"
        if self.weight is not None and not _is_number(self.weight, int, 1):
            yield f"weight is a number of jobs from 1, or None, not {self.weight!r}"
        if self.refusal is not None and not callable(self.refusal):
            yield f"refusal is a function, or None, not {self.refusal!r}"
        yield from _wrong_sentences("lacks", self.lacks)
        yield from _wrong_sentences("conditions", self.conditions)
        for feature in self.lacks if isinstance(self.lacks, Mapping) else ():
            if feature not in FEATURES:
                yield f"lacks has {feature!r}, which is no feature{_instead(feature, FEATURES)}"

    def has(self, feature: Feature) -> bool:
        """Whether the broker has a feature."""
        return feature not in self.lacks

    def lacks_kind(self, kind: Kind) -> str | None:
        """Why the broker has no jobs of a kind; None: it has them."""
        feature = _KINDS.get(kind)
        return None if feature is None else self.lacks.get(feature)


# -- the core ------------------------------------------------------------------------------------------


class Turn(msgspec.Struct):
    """Settle what is finished and claim what is next, in one step.

    `seq` grows by one with every turn of a worker on a queue; the same number again gets the same answer.
    """

    worker: str
    queue: str
    seq: int
    #: Of claims of this queue.
    settlements: Sequence[Settlement] = ()
    #: How many jobs are wanted; 0 only settles.
    limit: int = 0
    #: The shards to claim from; None means all.
    shards: Sequence[int] | None = None
    #: Jobs are taken so many at a time from one shard: the one with the most overdue job first or, with `in_order`,
    #: the next in the order of `shards`, round and round. (Priorities come before either.)
    batch: int = 1
    in_order: bool = False
    #: The payloads of a key in one claim; None: 100 calls of a keyed job, 1,000 payloads of a collecting one.
    max_payloads: int | None = None
    #: The queue's epoch for which `shards` was chosen; in another one the turn settles and claims nothing. 0: any.
    epoch: int = 0
    #: Called by a remote broker, once or more, before it waits: when the turn is on its way, or cannot be sent at once.
    #: The worker hands its runners their work then, and not while it makes the turn.
    on_sent: Callable[[], None] = lambda: None


class Answer(msgspec.Struct):
    """What a turn brought: claims, and the settlements that came too late.

    Claims are in the order in which they were taken: highest priority first, then by due time; with a batch or in
    order of shards, those taken together from one shard stand together.
    """

    claims: list[Claim]
    #: The token of all claims of this turn.
    token: int = 0
    #: Keys whose settlement was refused, because the claim belongs to another worker by now.
    refused: list[str] = []
    #: The queue's epoch and shard count now.
    epoch: int = 1
    shards: int = 1
    #: The shard count that the queue is being changed to; 0 when it is not. Until then nothing is claimed.
    resharding: int = 0
    #: Keys that were to be buried, and that the broker has no morgue for now: they stay, and are tried again.
    stayed: list[str] = []


class CoreBroker(Protocol):
    """The verbs that every broker has. A worker runs on them alone."""

    capabilities: Capabilities

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        """Make a queue if it does not exist. Returns its shard count: the stored one is the truth.

        A broker does here what the first `enqueue` would have to do before it stores a job: it connects, looks up and
        loads.
        """
        ...

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Store all jobs, or none. Queues that were not declared are made.

        A plain key that is queued or running already is not stored twice. Keyed and collecting jobs merge with the
        one of their key: payloads are united, equal ones (by identity) keep the smaller score, and while the key is
        being run they are set aside. Raises EnqueueError for what cannot be stored.
        """
        ...

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        """Make a worker known. Ids are never used twice: joining again under one tells which shards it serves now,
        and changes nothing else."""
        ...

    def turn(self, turn: Turn) -> Answer:
        """Settle and claim. Raises LeaseLost when the worker was declared dead or is not known."""
        ...

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """Return those queues that have a job due now, as soon as there is one; at the latest in `timeout_s`.

        A queue that is being resharded counts as one: its workers are to take a turn, learn of it, and help. One that
        is paused does not, unless it is being resharded as well.
        """
        ...

    def nudge(self) -> None:
        """End every `wait` of this process now."""
        ...

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Count up the worker's lease, and give back its claims older than `before` whose token is not in `held`.

        Raises LeaseLost when the worker was declared dead or is not known.
        """
        ...

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        """Forget a worker and give back its claims. Returns how many claims that were.

        A death is counted for each of `died` that it holds: of a keyed job at the call that is named, whether or not it
        is the first. Nothing else of them changes. A worker that was declared dead is left to `reclaim`.
        """
        ...

    def leases(self) -> dict[str, tuple[int, float]]:
        """For every living worker: its renewal counter, and the length of its lease in seconds."""
        ...

    def declare_dead(self, worker: str, counter: int) -> bool:
        """End a lease for ever, unless it was renewed since `counter`. `reclaim` gives the claims back."""
        ...

    def reclaim(self) -> int:
        """Give back the claims of dead workers, as they were before. Returns how many."""
        ...

    # -- a handle's verbs ------------------------------------------------------------------------------

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        """Where a job is; with `identity`, where one payload of it is. Raises NoQueueError for an unknown queue."""
        ...

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        """Remove a queued job with all its payloads or, with `identity`, one of them; what is set aside counts as
        queued. False for what is running or gone."""
        ...

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        """Move a queued job to another time. False for what is running or gone.

        A keyed job rests until then, and calls that were due later are due then. With `identity` one call of a
        keyed job is moved; a collecting job is moved as a whole in any case. While its key is being run, what is set
        aside is moved only by the identity of a payload.
        """
        ...

    def close(self) -> None:
        """Close files and connections. The broker opens them again when it is used."""
        ...


# -- the tiers -----------------------------------------------------------------------------------------


class Page(msgspec.Struct):
    """A part of a listing; `after` is what to ask for next, None at the end."""

    jobs: list[JobView]
    after: str | None = None


class InspectTier(Protocol):
    """Counts and lists jobs, queues and workers."""

    def queues(self) -> dict[str, int]:
        """Every queue and its shard count."""
        ...

    def exists(self, queue: str) -> bool:
        """Whether there is such a queue. A broker that cannot list all its queues lists it from then on."""
        ...

    def stats(self) -> list[QueueStats]:
        """Every queue in numbers, by name."""
        ...

    def lags(self, queue: str) -> dict[int, float]:
        """The shards that have something due, each with the seconds by which its most overdue job is late."""
        ...

    def workers(self) -> list[WorkerView]:
        """Every worker, with those that died within the last hour."""
        ...

    def find(self, queue: str, key: str) -> list[JobView]:
        """A key's job that runs, the one in the queue or set aside, and the one in the morgue: those that exist."""
        ...

    def listing(
        self,
        queue: str,
        which: Listing,
        *,
        order: Order | None = None,
        reverse: bool = False,
        start: float | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of jobs, by due time (dead ones: by the time of their burial) unless `order` says otherwise.

        `start` is the value of `order` to begin with, itself included; `after` goes on from a page before. What is set
        aside is not listed: its key is among the running ones.
        """
        ...


class EmptyMorgueResult(msgspec.Struct, frozen=True):
    """What emptying a morgue found, when it has ended."""

    #: How many dead jobs it saw that were there when it began, touched or not.
    seen: int
    #: Those that were left because the place is shared, and nothing says whose they are.
    ownerless: int = 0
    #: Seconds for which dead jobs may be hidden from it.
    hidden_s: int = 0


class OperateTier(Protocol):
    """Acts on jobs and queues, as an operator asks."""

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        """Make queued jobs due now, retries included, as `reschedule` does. Returns how many.

        All calls of a keyed job are due then; one that failed stays first. A job that is due already counts, and keeps
        its place.
        """
        ...

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        """Move queued jobs that have failed to the morgue, without waiting for their retries. Returns how many.

        Of a keyed job, the call that failed; of a collecting one, all its payloads. Jobs that have not failed stay.
        """
        ...

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        """Delete what `bury_failed` would bury. Returns how many."""
        ...

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        """Move jobs from the morgue back into the queue, due now, with all their retries. Returns how many.

        They merge with what is queued, and are set aside while their key is being run; a plain job, which cannot
        be, stays in the morgue then.
        """
        ...

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        """Delete jobs from the morgue. Returns how many."""
        ...

    def empty_morgue(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        """Revive or delete up to `most` dead jobs that were there when it began. Yields how many each step has done."""
        ...

    def pause(self, queue: str) -> bool:
        """Stop claiming from a queue until `resume`. False: it was paused already, or does not exist.

        What runs is settled, and enqueueing goes on.
        """
        ...

    def resume(self, queue: str) -> bool:
        """Undo `pause`, and wake idle workers. False: it was not paused, or does not exist."""
        ...


class EventsTier(Protocol):
    """Keeps which queue gets which event."""

    def subscribe(self, subscription: Subscription) -> bool:
        """Give a queue a copy of every event of a topic, from now on. False: it had this subscription already.

        A queue has one subscription to a topic: another filter takes the place of the one before, and returns True.
        """
        ...

    def unsubscribe(self, topic: str, queue: str) -> bool:
        """End a subscription; what is in the queue stays. False: there was none."""
        ...

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        """Those of a topic, or all, by topic and queue."""
        ...


class ReshardProgress(msgspec.Struct):
    """How far a queue's change of its shard count has come."""

    #: How many jobs it had to move when it began: queued, running, and dead where a dead job has a shard.
    total: int
    moved: int
    #: Claims that must be settled, or taken back, before it can be finished.
    running: int
    done: bool


class ShardsTier(Protocol):
    """Changes the shard count of queues in use."""

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        """Take the next step of changing a queue's shard count, moving `limit` jobs at most; the first begins it.

        From the first step to the last nothing is claimed; enqueueing goes on, into the new shards. It is done when
        all has moved and nothing runs; the epoch then grows. Any process may take any step, so a crash only delays it.
        Raises ConfigError while the queue is being changed to another count.
        """
        ...


#: `ok` needs no action, `note` is worth knowing, `problem` makes `laneway check` end with 3.
Level = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """One result of a check."""

    level: Level
    #: What was found, as a word that programs can compare: `resharding`, `no-dead-letter-queue`.
    code: str
    #: The same as a sentence, with what to do.
    text: str
    #: What it is about: the name of a queue, a task, a table or a server. Empty: the broker as a whole.
    subject: str = ""

    def __post_init__(self) -> None:
        if self.level not in get_args(Level):
            raise ConfigError(f"A finding has the level ok, note or problem, not {self.level!r}.")


class Duty(Protocol):
    """A task that a broker needs done again and again while a worker serves queues, in a thread of its own."""

    name: str
    #: The worker sets it. The duty may call it from any thread: its next round then comes within so many seconds.
    sooner: Callable[[float], None]

    def round(self) -> float:
        """Do it once. Returns the seconds until the next round. The worker reports an error and tries again."""
        ...


class AutoCreateNote(msgspec.Struct, frozen=True):
    """What a broker has made in development, in a sentence; or what exists and differs from what it should be."""

    text: str
    made: bool = True


class HealthTier(Protocol):
    """Checks the broker, mends it, and keeps it going."""

    #: Whether the broker makes missing resources on first use, in development. The app sets it. A broker that
    #: makes its queues in any case has no use for it.
    auto_create: bool

    def unmade(self) -> Finding | None:
        """A finding if the store does not exist yet; `check` and the other verbs would make it."""
        ...

    def check(self, app: Laneway | None = None) -> list[Finding]:
        """What is wrong with the broker, or worth knowing; with `app`, also for the tasks and listeners of that app."""
        ...

    def repair(self) -> list[str]:
        """Mend what can be mended. Returns what was done, a sentence each."""
        ...

    def duties(self, queues: Collection[str]) -> Sequence[Duty]:
        """What a worker that serves these queues must do for the broker."""
        ...

    def provide(self, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        """Make what is missing for these queues of an app, in development."""
        ...


class Broker(CoreBroker, Protocol):
    """A broker with its tiers. `complete` makes one of a CoreBroker."""

    @property
    def inspect(self) -> InspectTier: ...
    @property
    def operate(self) -> OperateTier: ...
    @property
    def events(self) -> EventsTier: ...
    @property
    def shards(self) -> ShardsTier: ...
    @property
    def health(self) -> HealthTier: ...


# -- checking a broker ---------------------------------------------------------------------------------

_PROTOCOLS: dict[Tier, type] = {
    "inspect": InspectTier,
    "operate": OperateTier,
    "events": EventsTier,
    "shards": ShardsTier,
    "health": HealthTier,
}


class AbsentTier:
    """Stands for a tier that a broker lacks: every verb is refused with the broker's reason."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, verb: str) -> Any:
        if verb.startswith("__"):
            raise AttributeError(verb)
        raise BrokerRefusedError(self._reason)


def complete(broker: CoreBroker) -> Broker:
    """Check a broker against the contract, and put an AbsentTier in the place of each tier that it lacks.

    Raises ConfigError for the first part that is missing or misspelled.
    """
    name = type(broker).__name__
    if isinstance(broker, type):
        raise _incomplete(f"{broker.__name__} is a class; make an object of it")
    capabilities = getattr(broker, "capabilities", None)
    if not isinstance(capabilities, Capabilities):
        raise _incomplete(
            f"{name} is no broker: it has no capabilities{_instead('capabilities', dir(broker))}. A broker has them as "
            "an attribute, a laneway.broker.Capabilities; RedisBroker.of(…) makes a broker of a client"
        )
    _check_verbs(name, broker, CoreBroker)
    for tier, protocol in _PROTOCOLS.items():
        has = _has(broker, tier, Broker)
        if tier in capabilities.lacks:
            if has and not isinstance(getattr(broker, tier), AbsentTier):
                raise _incomplete(f"{name} has the tier {tier}, and its capabilities lack it; remove one of the two")
            try:
                setattr(broker, tier, AbsentTier(capabilities.lacks[tier]))
            except AttributeError:  # __slots__, or a property
                raise _incomplete(f"{name} has no attribute {tier} that can be set; let it have one") from None
        elif not has:
            raise _incomplete(
                f"{name} has no tier {tier}{_instead(tier, dir(broker))}; give it one, or name it in capabilities.lacks"
            )
        else:
            _check_verbs(f"{name}.{tier}", getattr(broker, tier), protocol)
    return cast(Broker, broker)


def _has(part: object, name: str, protocol: type) -> bool:
    """Whether a part has a verb or tier of its own. One inherited from the protocol does nothing and returns None."""
    stub = getattr(protocol, name)
    if isinstance(stub, property):
        return hasattr(part, name) and getattr(type(part), name, None) is not stub
    return hasattr(part, name) and getattr(getattr(part, name), "__func__", None) is not stub


def _check_verbs(name: str, part: object, protocol: type) -> None:
    if isinstance(part, type):
        raise _incomplete(f"{name} is a class; make an object of it")
    if isroutine(part):
        raise _incomplete(f"{name} is a function; it must be an object with the verbs")
    for verb in (verb for verb in vars(protocol) if not verb.startswith("_")):
        own = getattr(part, verb) if _has(part, verb, protocol) else None
        if not callable(own):
            raise _incomplete(f"{name} has no {verb}(){_instead(verb, dir(part))}")
        _check_arguments(f"{name}.{verb}()", own, signature(getattr(protocol, verb)))
    for field in protocol.__annotations__:
        if not hasattr(part, field):
            raise _incomplete(f"{name} has no {field}{_instead(field, dir(part))}")


def _check_arguments(name: str, verb: Callable[..., Any], wanted: Signature) -> None:
    """Raise ConfigError if a verb cannot be called in all ways of the contract, or only by `await`."""
    if iscoroutinefunction(verb):
        raise _incomplete(f"{name} is async, and a broker's verbs are not")
    try:
        own = signature(verb)
    except ValueError:  # written in C: Python does not know what it takes
        return
    every = list(wanted.parameters.values())[1:]
    required = [each for each in every if each.default is each.empty]
    for given, by_name in ((every, False), (every, True), (required, False)):
        named = {each.name: None for each in given if by_name or each.kind is each.KEYWORD_ONLY}
        try:
            own.bind(*(None for each in given if each.name not in named), **named)
        except TypeError as error:
            arguments = ", ".join(f"{each.name}=…" if each.name in named else each.name for each in given)
            raise _incomplete(f"{name} cannot be called with the arguments ({arguments}): {error}") from None


def _instead(wanted: object, names: Collection[str]) -> str:
    """What was probably meant."""
    from difflib import get_close_matches  # only for an error

    close = get_close_matches(
        str(wanted), [name for name in names if not name.startswith("_") and name != wanted], 1, 0.75
    )
    return f" (did you mean {close[0]}?)" if close else ""


def _incomplete(problem: str) -> ConfigError:
    return ConfigError(f"{problem}. docs/writing-a-broker.md describes the contract.")
