"""Resource: what the classes of this package share: the roles and their actions, and the steps of a creation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from .....broker import Finding
from ...errors import AWSError, DeniedError, is_refusal

if TYPE_CHECKING:
    from ...account import Account
    from ..iam import AccountLocation

Role = Literal["worker", "producer", "operator"]
#: The name of a policy statement, its actions, and an ARN that it allows them on.
Grant = tuple[str, "Actions", str]
#: Requests that only try a permission: by the IAM action, the operation of the client and its parameters.
Probes = Mapping[str, tuple[str, Mapping[str, Any]]]
Findings = Iterator[Finding]


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """What IAM must allow each role to do to a kind of resource."""

    #: Enqueues, publishes, cancels, reschedules, and asks for the status of what it has enqueued.
    producer: tuple[str, ...] = ()
    #: Runs jobs, buries them, publishes, polls the table, and shows the queues in numbers.
    worker: tuple[str, ...] = ()
    #: Looks, acts on delayed jobs, empties the morgue, pauses, subscribes. What `check` tries is a worker's.
    operator: tuple[str, ...] = ()


#: A name that no resource of ours has.
NOBODY = "laneway-check"
CREATE_IT = "make it with laneway aws create TARGET"


class CreateStep(msgspec.Struct):
    """A resource that was created or found, or would be created (`missing`). The operator has to fix a `problem`."""

    level: Literal["made", "missing", "exists", "problem"]
    text: str


Steps = Iterator[CreateStep]


class Creation(msgspec.Struct, frozen=True, kw_only=True):
    """How missing resources are created."""

    #: Create nothing; report what would be created.
    dry_run: bool = False
    #: For a worker: it also adds a missing redrive policy to a queue, and sets filters afterwards.
    development: bool = False
    pause: Callable[[float], None] = time.sleep

    def step(self, subject: str, done: str, act: Callable[[], object], note: str = "") -> CreateStep:
        """Create or change a resource: "The table t was made; it is paid by request." """
        if self.dry_run:
            return CreateStep("missing", f"{subject} would be {done}.")
        act()
        return CreateStep("made", f"{subject} was {done}{note}.")


def denied(what: str, *actions: str, error: DeniedError | None = None) -> Finding:
    """The finding for actions that are not allowed. If AWS does not know the credentials, the text of the error."""
    text = (
        f"These credentials may not do {', '.join(actions)} on {what}, which a worker does; laneway aws iam TARGET "
        "prints what it needs."
    )
    return Finding("problem", "denied", text if error is None or is_refusal(error) else str(error), what)


class Resource:
    """A resource that an app needs."""

    actions: Actions
    #: The client's method that calls its service, and the action that `look` takes.
    service: str
    look_action: str
    #: Its parts of "The table t, for delayed jobs, was made; it is paid by request.", and "The table t exists."
    subject: str
    note = ""
    existing: str

    def __init__(self, account: Account, name: str, what: str = "") -> None:
        """`what`: how a denial names it."""
        self.account = account
        self.name = name
        self.what = what or name

    def look(self) -> Any:
        """What AWS knows of it; None if it does not exist."""

    def make(self, creation: Creation) -> None:
        """Create it. It does not exist."""

    def wrong(self, found: Any) -> Findings:
        """What is wrong with it, by what `look` has found."""
        return iter(())

    def missing(self) -> Findings:
        """A finding if it should exist."""
        return iter(())

    def probes(self, found: Any) -> Probes:
        """Requests that try what a worker does to it."""
        return {}

    def grants(self, location: AccountLocation) -> Iterator[Grant]:
        """Its part of an IAM policy."""
        return iter(())

    def create(self, creation: Creation) -> Steps:
        """Create it if it is missing. What exists is reported, and not changed."""
        found = self.look()
        if found is None:
            yield creation.step(self.subject, "made", lambda: self.make(creation), self.note)
        else:
            yield CreateStep("exists", self.existing)
            yield from (CreateStep("problem", finding.text) for finding in self.wrong(found))

    def problems(self) -> Findings:
        """What is wrong with it, or with the permissions on it. Changes nothing."""
        try:
            found = self.look()
            yield from self.missing() if found is None else self.wrong(found)
        except AWSError as error:
            yield from self.unreadable(error)
            return
        lacking: list[str] = []
        for action, (operation, params) in self.probes(found).items() if found is not None else ():
            try:
                getattr(self.account.clients, self.service)(operation, **params)
            except DeniedError:
                lacking.append(action)
            except AWSError:
                pass
        if lacking:
            yield denied(self.what, *lacking)

    def unreadable(self, error: AWSError) -> Findings:
        """A finding if `look` fails."""
        if isinstance(error, DeniedError):
            yield denied(self.what, self.look_action, error=error)
        else:
            yield Finding("problem", "aws-error", str(error), self.what)

    def problem(self, code: str, text: str) -> Finding:
        """A finding about it."""
        return Finding("problem", code, text, self.name)
