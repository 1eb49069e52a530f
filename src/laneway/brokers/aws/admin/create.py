"""Creation: creates missing queues, tables, topics and subscriptions, by command or in development.

It may be repeated. An existing resource is reported and not changed, but a queue's access policy gets a statement if
it does not let the topic send. Each resource is created after those that it refers to: an interrupted run leaves no
dangling reference, and the next run continues. In development the worker itself creates the missing resources of its
queues (`provide`), without `laneway aws create`. Then a queue without a redrive policy, as the Ruby original's
development mode makes them, gets such a policy, and the worker sets filters itself. It does not create the waiter
table: most features work without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from ....broker import AutoCreateNote, Finding
from ....errors import BrokerAwayError
from ....events.event import Subscription
from ..dynamodb.tables import problem_of
from ..errors import AWSError, MissingError
from ..settings import MAX_NAME
from ..sqs.queues import FIFO_SUFFIX
from .resources import (
    EXPIRES,
    MAX_RECEIVES,
    QueueRequirement,
    needs_of,
    queue_attributes,
    receives_problem,
    redrive_of,
    redrive_policy,
    retention_problem,
    size_problem,
    table_definition,
    ttl_problem,
)

if TYPE_CHECKING:
    from ....app import Laneway
    from ..broker import AWSBroker

Level = Literal["made", "missing", "exists", "problem"]


class CreateStep(msgspec.Struct):
    """A resource that was created or found, or would be created (`missing`). The operator has to fix a `problem`."""

    level: Level
    text: str


Steps = Iterator[CreateStep]


def problems(findings: Iterable[Finding]) -> Steps:
    """A step for each finding."""
    return (CreateStep("problem", finding.text) for finding in findings)


class EventCreation:
    """Creates missing topics and subscriptions; with `dry_run` it only reports them.

    `sets_filters`: the caller sets filters afterwards, so a different filter is not reported.
    """

    def __init__(self, broker: AWSBroker, *, dry_run: bool, sets_filters: bool = False) -> None:
        self._topics = broker.account.topics
        self._subscribing = broker.events
        self._ties = broker.events
        self._name_of = broker.account.queues.name_of
        self._dry_run = dry_run
        self._sets_filters = sets_filters

    def topic(self, topic: str, what: str) -> Steps:
        """Create a topic."""
        name = self._topics.name(topic)
        if self._topics.exists(topic):
            yield CreateStep("exists", f"The SNS topic {name} exists.")
        elif self._dry_run:
            yield CreateStep("missing", f"The SNS topic {name}, {what}, would be made.")
        else:
            self._topics.create(topic)
            yield CreateStep("made", f"The SNS topic {name}, {what}, was made.")

    def subscription(self, wanted: Subscription) -> Steps:
        """Let a topic send to a queue, and subscribe the queue to it. Both should exist."""
        topic, queue = self._topics.name(wanted.topic), self._name_of(wanted.queue, False)
        try:
            door = self._subscribing.access_of(wanted.queue)
            is_open = self._subscribing.is_open(door, wanted.topic)
            tie = self._ties.one(wanted.topic, wanted.queue)
        except MissingError as error:
            if not self._dry_run:  # it could not be created, and an earlier step has said so
                yield CreateStep("problem", str(error))
                return
            door, is_open, tie = None, False, None
        if door is not None and (denied := self._subscribing.is_denied(door, wanted.topic)):
            yield CreateStep("problem", denied)
        elif is_open:
            yield CreateStep("exists", f"The SNS topic {topic} may send to the SQS queue {queue}.")
        elif self._dry_run or door is None:
            yield CreateStep("missing", f"The SNS topic {topic} would be allowed to send to the SQS queue {queue}.")
        else:
            self._subscribing.open(door, wanted.topic)
            yield CreateStep("made", f"The SNS topic {topic} was allowed to send to the SQS queue {queue}.")
        if tie is not None:
            yield CreateStep("exists", f"The SQS queue {queue} is subscribed to {topic}.")
            if not self._sets_filters and not self._ties.terms(tie).let_through(wanted.filter):
                yield CreateStep(
                    "problem",
                    f"The subscription of {queue} to {topic} has another filter than its listener declares, and was "
                    "left as it is; laneway subscribe TARGET sets it, and so does a worker that may.",
                )
        elif self._dry_run or door is None:
            yield CreateStep("missing", f"The SQS queue {queue} would be subscribed to {topic}.")
        else:
            self._subscribing.make(wanted, door)
            yield CreateStep("made", f"The SQS queue {queue} was subscribed to {topic}.")


#: Seconds to wait for a new table to become active, and between two checks.
PATIENCE_S = 120.0
PAUSE_S = 0.5


class Creation:
    """Creates missing resources; with `dry_run` it only reports them.

    `development`: for a worker. It also adds a missing redrive policy to a queue, and sets filters afterwards.
    """

    def __init__(
        self,
        broker: AWSBroker,
        *,
        dry_run: bool = False,
        development: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._broker = broker
        self._clients = broker.account.clients
        self._dry_run = dry_run
        self._pause = pause
        self._development = development
        self._events = EventCreation(broker, dry_run=dry_run, sets_filters=development)

    def carry_out(
        self, needs: Mapping[str, QueueRequirement], *, tables: bool = True, publishes: Collection[str] = ()
    ) -> Steps:
        """Create the queues for plain and for keyed jobs, their dead-letter queues, and the tables. A listener also
        gets its topic and subscription. `publishes` are the topics that the app publishes to."""
        self._broker.account.queues.look_again()
        for topic in publishes:
            yield from self._events.topic(topic, "for what the app publishes")
        for need in needs.values():
            wanted = need.subscription
            if wanted is not None and wanted.topic not in publishes:
                yield from self._events.topic(wanted.topic, f"for the events of {', '.join(need.plain)}")
            for fifo in need.kinds:
                yield from self._queue(need, fifo)
            if wanted is not None:
                yield from self._events.subscription(wanted)
        if tables:
            for name in dict.fromkeys(map(self._broker.account.tables.name, needs)):
                yield from self._table(name)

    # -- queues ----------------------------------------------------------------------------------------

    def _queue(self, need: QueueRequirement, fifo: bool) -> Steps:
        name = self._broker.account.queues.name_of(need.queue, fifo)
        attributes = self._attributes(name)
        redrive = None if attributes is None else redrive_of(attributes)
        letters = self._broker.account.queues.dead_name_of(name)
        arn = ""
        if attributes is None or redrive is None:
            if len(letters) > MAX_NAME:
                yield CreateStep(
                    "problem",
                    f"The dead-letter queue of {name} would be called {letters}, and SQS takes {MAX_NAME} characters "
                    f"at most; give the queue {need.queue} a shorter name.",
                )
                return
            arn = yield from self._letters(letters, fifo)
            if attributes is None:
                yield from self._make_queue(name, f"its dead letters in {letters}", fifo, arn)
                return
        yield CreateStep("exists", f"The SQS queue {name} exists.")
        yield from problems(retention_problem(name, attributes))
        yield from problems(size_problem(name, attributes, self._broker.account.settings.max_body))
        if redrive is None and self._development:
            yield from self._redrive(name, letters, arn)
            return
        if redrive is None:
            yield CreateStep(
                "problem",
                f"The SQS queue {name} has no redrive policy, and was left as it is; give it one that names {letters} "
                f"and has a maxReceiveCount of {MAX_RECEIVES}.",
            )
            return
        yield from self._named_letters(name, attributes.get("QueueArn", ""), redrive.dead_letter_target_arn)
        if fifo in need.runs:
            yield from problems(receives_problem(name, redrive, need.runs[fifo], ", ".join(need.tasks(fifo))))

    def _redrive(self, name: str, letters: str, letters_arn: str) -> Steps:
        """Give a redrive policy to a queue that has none."""
        url = self._clients.sqs("get_queue_url", QueueName=name, **self._owner())["QueueUrl"]
        policy = {"RedrivePolicy": redrive_policy(letters_arn)}
        self._clients.sqs("set_queue_attributes", QueueUrl=url, Attributes=policy)
        yield CreateStep("made", f"The SQS queue {name} was given a redrive policy, its dead letters in {letters}.")

    def _named_letters(self, name: str, arn: str, letters_arn: str) -> Steps:
        """Ensure the dead-letter queue that a redrive policy names, unless it is in another account or region."""
        if letters_arn.rpartition(":")[0] != arn.rpartition(":")[0]:
            return
        letters = letters_arn.rpartition(":")[2]
        attributes = self._attributes(letters)
        if attributes is None:
            what = f"for the dead letters of {name}, whose redrive policy names it"
            yield from self._make_queue(letters, what, letters.endswith(FIFO_SUFFIX), None)
            return
        yield CreateStep("exists", f"The SQS queue {letters} exists.")
        yield from problems(retention_problem(letters, attributes))

    def _letters(self, name: str, fifo: bool) -> Generator[CreateStep, None, str]:
        """Create a dead-letter queue if it is missing. Returns its ARN."""
        attributes = self._attributes(name)
        if attributes is None:
            yield from self._make_queue(name, "for dead letters", fifo, None)
            attributes = self._attributes(name) or {}
        else:
            yield CreateStep("exists", f"The SQS queue {name} exists.")
            yield from problems(retention_problem(name, attributes))
        return attributes.get("QueueArn", "")

    def _make_queue(self, name: str, what: str, fifo: bool, letters_arn: str | None) -> Steps:
        if self._dry_run:
            yield CreateStep("missing", f"The SQS queue {name}, {what}, would be made.")
            return
        attributes = queue_attributes(self._broker.account.settings, fifo, letters_arn)
        try:
            self._clients.sqs("create_queue", QueueName=name, Attributes=attributes)
        except AWSError as error:
            if not error.code.endswith("QueueDeletedRecently"):
                raise
            raise AWSError(
                f"The SQS queue {name} was deleted a moment ago, and SQS makes no other of that name for 60 seconds; "
                "do it again then.",
                code=error.code,
            ) from None
        yield CreateStep("made", f"The SQS queue {name}, {what}, was made.")

    def _attributes(self, name: str) -> dict[str, str] | None:
        """The attributes of an SQS queue; None if the queue does not exist."""
        try:
            url = self._clients.sqs("get_queue_url", QueueName=name, **self._owner())["QueueUrl"]
            answer = self._clients.sqs("get_queue_attributes", QueueUrl=url, AttributeNames=["All"])
        except MissingError:
            return None
        found: dict[str, str] = answer.get("Attributes", {})
        return found

    def _owner(self) -> dict[str, str]:
        account = self._broker.account.settings.account
        return {} if account is None else {"QueueOwnerAWSAccountId": account}

    # -- tables ----------------------------------------------------------------------------------------

    def _table(self, name: str) -> Steps:
        try:
            described = self._clients.dynamodb("describe_table", TableName=name)["Table"]
        except MissingError:
            yield from self._make_table(name)
            return
        problem = problem_of(described)
        if problem is not None:
            yield CreateStep("problem", problem)
            return
        yield CreateStep("exists", f"The table {name} exists.")
        said = self._clients.dynamodb("describe_time_to_live", TableName=name).get("TimeToLiveDescription", {})
        yield from problems(ttl_problem(name, said))

    def _make_table(self, name: str) -> Steps:
        if self._dry_run:
            yield CreateStep("missing", f"The table {name}, for delayed jobs, would be made.")
            return
        self._clients.dynamodb("create_table", **table_definition(name))
        self._await_table(name)
        # If we die before this, the table works without expiry, and the next run reports that.
        expiry = {"Enabled": True, "AttributeName": EXPIRES}
        self._clients.dynamodb("update_time_to_live", TableName=name, TimeToLiveSpecification=expiry)
        yield CreateStep("made", f"The table {name}, for delayed jobs, was made; it is paid by request.")

    def _await_table(self, name: str) -> None:
        for _ in range(int(PATIENCE_S / PAUSE_S)):
            described = self._clients.dynamodb("describe_table", TableName=name)["Table"]
            if described.get("TableStatus") == "ACTIVE":
                return
            self._pause(PAUSE_S)
        raise BrokerAwayError(f"The table {name} is not ready after {PATIENCE_S:.0f} seconds; do it again in a while.")


def provide(broker: AWSBroker, app: Laneway, queues: Collection[str]) -> list[AutoCreateNote]:
    """Create what is missing for these queues, with dead-letter queues, and for listeners topics and subscriptions.

    Returns a note for each resource that was created, and for each existing one that is not as it should be.
    """
    needs = needs_of(app)
    wanted = {queue: needs.get(queue) or QueueRequirement(queue) for queue in queues}
    steps = list(Creation(broker, development=True).carry_out(wanted, tables=False))
    broker.account.queues.look_again()
    return [AutoCreateNote(step.text, step.level == "made") for step in steps if step.level in ("made", "problem")]
