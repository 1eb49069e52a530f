"""The checks of `laneway check`: the app, its broker, stored bodies, and listeners. Reads only.

`examine` gives a `Finding` for each result; only the level `problem` makes the check fail. `ListenerAudit` compares
listeners with subscriptions: which listener gets no events, and which subscribed queue has no listener.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..app import Laneway
from ..broker import Broker, Finding
from ..errors import BrokerRefusedError, LanewayError
from ..events.event import Subscription
from ..jobs.data import Kind, QueueStats, WorkerView
from ..jobs.ticket import Serializer
from .listing import task_names
from .output import count
from .target import find_queues, load_imports, unmade_store
from .times import span

Findings = Iterator[Finding]


def is_of_app(app: Laneway, subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """The subscriptions whose queues carry the app's own name, infix and env: no other app's listener can have them."""
    if app.name is None:
        return []
    end = f"-{app.env}" if app.env else ""
    return [
        each
        for each in subscriptions
        if each.topic.startswith(f"{app.infix}-")
        and each.topic.endswith(end)
        and each.queue == f"{app.name}-{each.topic}"
    ]


def waiting(broker: Broker, queue: str) -> int:
    """How many jobs are queued in a queue, including jobs that are not due."""
    _find(broker, queue)
    return next((stats.length for stats in broker.inspect.stats() if stats.queue == queue), 0)


def living(broker: Broker) -> list[WorkerView] | None:
    """The live workers; None if the broker does not know its workers."""
    try:
        return [worker for worker in broker.inspect.workers() if not worker.dead]
    except BrokerRefusedError:
        return None


def _find(broker: Broker, queue: str) -> None:
    """Make the broker look for a queue, because its numbers may leave out queues that it has not looked for.

    If the broker refuses that, the numbers may lack the queue.
    """
    try:
        broker.inspect.exists(queue)
    except BrokerRefusedError:
        pass


def _wait(length: int) -> str:
    return f"{count(length, 'job')} {'waits' if length == 1 else 'wait'}"


def _ending(target: str, queue: str) -> str:
    return f"end that with laneway unsubscribe {target} --queue {queue}"


class ListenerAudit:
    """Compares an app's listeners with the stored subscriptions.

    Also finds subscriptions of other apps whose queues no worker seems to serve.
    """

    def __init__(self, app: Laneway, broker: Broker, workers: Iterable[WorkerView] | None) -> None:
        self._app = app
        self._listeners = app.listeners()
        self._stored: list[Subscription] = []
        self._unseen = ""
        #: The queues that a live worker serves; None if that is not known.
        self._served = None if workers is None else {queue for worker in workers for queue in worker.queues}
        #: Whether the operator creates the queues. Then the broker's own check reports what listeners lack. Nor does
        #: such a broker know all workers.
        self._says_itself = not broker.capabilities.makes_queues
        if app.name is not None or self._listeners or not self._says_itself:
            try:
                self._stored = broker.events.subscriptions()
            except BrokerRefusedError as error:
                self._unseen = str(error)
        own = {*app.queues()}
        #: By queue, the subscriptions with this app's name for which it has no listener.
        self._unheard = {each.queue: each for each in is_of_app(app, self._stored) if each.queue not in own}
        for queue in self._unheard:
            _find(broker, queue)
        self._others: list[Subscription] = []
        if not self._says_itself and self._served is not None:
            apart = {*own, *self._served, *self._unheard}
            self._others = [each for each in self._stored if each.queue not in apart]

    @property
    def named(self) -> set[str]:
        """The queues about whose waiting jobs `findings` says what to do."""
        return {*self._unheard, *(each.queue for each in self._others)}

    def findings(self, target: str, stats: Iterable[QueueStats]) -> Findings:
        """A finding for each listener without a subscription and each subscription without a listener."""
        if self._unseen and self._listeners:
            yield Finding("note", "unseen-subscriptions", f"Subscriptions cannot be looked at: {self._unseen}")
        elif not self._unseen and not self._says_itself:
            yield from self._unsubscribed(target, self._served or ())
        lengths = {each.queue: each.length for each in stats}
        for queue, subscription in self._unheard.items():
            yield self._unheard_one(target, subscription, lengths.get(queue, 0))
        for subscription in self._others:
            if length := lengths.get(subscription.queue, 0):
                yield Finding(
                    "note",
                    "no-listener",
                    f"The queue {subscription.queue} is subscribed to {subscription.topic}, {target} has no listener "
                    f"for it, and no worker serves it; {_wait(length)} there. Start the worker that has the listener; "
                    f"or, if there is none any more, {_ending(target, subscription.queue)}, and then drain it.",
                    subscription.queue,
                )

    def _unheard_one(self, target: str, subscription: Subscription, length: int) -> Finding:
        queue = subscription.queue
        text = f"The queue {queue} is subscribed to {subscription.topic}, and {target} has no listener for it"
        text += f"; {_wait(length)} there" if length else ""
        # If the app has an env, only queues that end with it count as the app's.
        others = "" if self._app.env else " to another environment (env=…, LANEWAY_ENV) or"
        if self._served is not None and queue in self._served:
            text += f". A worker serves it, so it belongs{others} to another version of the app."
            return Finding("note", "other-version", text, queue)
        unserved = self._served is not None
        return Finding(
            "problem" if length and unserved else "note",
            "no-listener",
            f"{text}{', and no worker serves it' if unserved else ''}. Its listener was removed, or it belongs{others} "
            f"to another version of the app. Only if no app is to get these events any more, {_ending(target, queue)}.",
            queue,
        )

    def _unsubscribed(self, target: str, served: Collection[str]) -> Findings:
        stored = {(each.topic, each.queue): each for each in self._stored}
        for listener in self._listeners:
            wanted = listener.subscription
            found = stored.get((wanted.topic, wanted.queue))
            if found is None and wanted.queue in served:
                yield Finding(
                    "problem",
                    "unsubscribed",
                    f"The listener {listener.name} is not subscribed to {wanted.topic}, though a worker serves its "
                    f"queue {wanted.queue}; its log says why, and laneway subscribe {target} tries again.",
                    listener.name,
                )
            elif found is None:
                yield Finding(
                    "note",
                    "unsubscribed",
                    f"The listener {listener.name} is not subscribed to {wanted.topic} yet; a worker that serves it "
                    f"does so when it starts, and so does laneway subscribe {target}.",
                    listener.name,
                )
            elif found.filter != wanted.filter:
                yield Finding(
                    "note",
                    "other-filter",
                    f"The listener {listener.name} is subscribed to {wanted.topic} with another filter than it "
                    f"declares; the next worker that starts writes its own, and so does laneway subscribe {target}.",
                    listener.name,
                )


#: How many jobs of a queue are checked for tasks that the app does not declare.
SAMPLE = 200


def examine(app: Laneway, name: str) -> Findings:
    """All findings about an app and its broker."""
    yield from _tasks(app, name)
    yield from _broker(app, name)


def _tasks(app: Laneway, name: str) -> Findings:
    try:
        load_imports(app)
    except LanewayError as error:
        yield Finding("problem", "unloadable", str(error), name)
    listeners = [listener.name for listener in app.listeners()]
    tasks = [task.name for task in app.registry if task not in app.listeners()]
    if tasks:
        yield Finding("ok", "tasks", f"{name} has {count(len(tasks), 'task')}: {', '.join(tasks)}.", name)
    if listeners:
        text = f"{name} has {count(len(listeners), 'listener')}: {', '.join(listeners)}."
        yield Finding("ok", "listeners", text, name)
    if tasks or listeners:
        return
    if app.name:
        text = f"{name} has no tasks and no listeners: it can publish, and has nothing for a worker to run."
        yield Finding("ok", "no-tasks", text, name)
    else:
        text = f"{name} has no tasks and no listeners; declare one with @app.task or @app.listener."
        yield Finding("problem", "no-tasks", text, name)


def _broker(app: Laneway, name: str) -> Findings:
    try:
        broker = app.broker
        if unmade := unmade_store(broker):
            yield unmade
            return
        can, stored = broker.capabilities, {}
        broker.leases()  # only to see that the broker answers: without `inspect` and `health` nothing else asks it
        if can.has("inspect"):
            find_queues(app, broker)
            stored = broker.inspect.queues()
        yield Finding("ok", "opened", f"Jobs are kept in {app.url}; it can be opened.")
        said = broker.health.check(app) if can.has("health") else []
        yield from said
        if not can.has("health"):
            text = f"The broker can be neither checked nor mended: {can.lacks['health']}"
            yield Finding("note", "cannot-check", text)
        elif not any(finding.level == "problem" for finding in said):
            yield Finding("ok", "healthy", "The broker finds nothing wrong with itself.")
        if not can.has("inspect"):
            yield Finding("note", "cannot-inspect", f"Its queues cannot be looked at: {can.lacks['inspect']}")
            return
        workers = living(broker)
        hearing = ListenerAudit(app, broker, workers)
        stats = broker.inspect.stats()
        yield from _queues(app, stats, workers, hearing.named)
        yield from _bodies(app, broker, stored)
        yield from hearing.findings(name, stats)
        resharding = {finding.subject for finding in said if finding.code == "resharding"}
        yield from _shards(app, {queue: shards for queue, shards in stored.items() if queue not in resharding})
    except LanewayError as error:
        yield Finding("problem", "broker", str(error))


def _queues(app: Laneway, stats: list[QueueStats], workers: list[WorkerView] | None, named: set[str]) -> Findings:
    """Findings about each queue. Other findings say to which app the `named` queues belong."""
    declared = {*app.queues(), *named}
    served = {queue for worker in workers or () for queue in worker.queues}
    for queue in stats:
        if queue.queue not in declared and queue.length:
            yield Finding(
                "note",
                "undeclared-queue",
                f"The queue {queue.queue} holds {count(queue.length, 'job')}, and no task of this app declares it; "
                f"a worker serves it with -Q {queue.queue}.",
                queue.queue,
            )
        late = f"the oldest is {span(queue.lag)} late"
        if queue.paused and queue.lag:  # the operator has paused it, so it is no problem
            yield Finding(
                "note",
                "paused",
                f"The queue {queue.queue} is paused and has jobs that are due; {late}. It goes on with "
                f"laneway resume {queue.queue}.",
                queue.queue,
            )
        elif queue.lag and workers is not None and queue.queue not in served:
            text = f"The queue {queue.queue} has jobs that are due and no worker; {late}."
            yield Finding("note", "no-worker", text, queue.queue)
        if queue.dead:
            text = f"The morgue of {queue.queue} holds {count(queue.dead, 'job')}; see laneway morgue."
            yield Finding("note", "dead-jobs", text, queue.queue)
        yield from _unserved(queue.queue, queue.shards, workers or ())


def _bodies(app: Laneway, broker: Broker, stored: dict[str, int]) -> Findings:
    for name in app.queues():
        if name not in stored:
            if broker.capabilities.makes_queues:  # else the broker's own check reports it
                text = f"The queue {name} does not exist yet; a worker or the first job makes it."
                yield Finding("ok", "no-queue", text, name)
        elif type(app.serializer) is Serializer:  # another serializer may read bodies that are not our tickets
            yield from _unknown_tasks(app, broker, name)


def _unserved(queue: str, shards: int, workers: Iterable[WorkerView]) -> Findings:
    """Shards that no worker serves, though workers serve the rest of the queue: a splitter has left them out."""
    serving = [worker for worker in workers if queue in worker.queues]
    if not serving or any(queue not in worker.shards for worker in serving):
        return
    left_out = sorted(set(range(shards)).difference(*(worker.shards[queue] for worker in serving)))
    if left_out:
        names = ("shard " if len(left_out) == 1 else "shards ") + ", ".join(map(str, left_out))
        yield Finding(
            "problem",
            "unserved-shards",
            f"No worker serves {names} of the queue {queue}, though others are served; start one for every node "
            "(LANEWAY_NODES, LANEWAY_NODE), or see to your splitter.",
            queue,
        )


def _shards(app: Laneway, stored: dict[str, int]) -> Findings:
    """Declared shard counts that differ from the stored ones. The stored count is the true one."""
    for queue, shards in stored.items():
        task = app.registry.collector_of(queue)
        if task is not None and task.options.shards != shards:
            yield Finding(
                "note",
                "shard-count",
                f"The task {task.name} declares {count(task.options.shards, 'shard')} and its queue {queue} has "
                f"{shards}, which is what counts; change it with laneway reshard {queue} {task.options.shards}, or "
                "declare what it has.",
                queue,
            )


def _unknown_tasks(app: Laneway, broker: Broker, queue: str) -> Findings:
    """Jobs for tasks that the app does not have: they can only fail."""
    if not broker.capabilities.has("queued_jobs"):
        return
    if app.registry.listener_of(queue):
        return  # bodies for a listener are values of events, even if they look like tickets
    jobs = broker.inspect.listing(queue, "queued", limit=SAMPLE).jobs
    names = {name for job in jobs for name in task_names(job) if name and app.registry.find(name) is None}
    for name in sorted(names):
        yield Finding(
            "problem",
            "unknown-task",
            f"The queue {queue} holds jobs for a task {name!r}, which this app does not have; declare it, or give its "
            "successor that name as an alias.",
            queue,
        )
    if any(job.kind is Kind.COLLECTING for job in jobs) and app.registry.collector_of(queue) is None:
        yield Finding(
            "problem",
            "no-collecting-task",
            f"The queue {queue} holds collecting jobs, and this app has no collecting task for it; declare one with "
            f"@app.collect(queue={queue!r}).",
            queue,
        )
