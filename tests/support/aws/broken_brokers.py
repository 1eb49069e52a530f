"""AWS brokers with one mistake each. The simulator and the state machine must see it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from laneway.broker import Answer, Turn
from laneway.brokers.aws.dynamodb.forward import ForwardResult
from laneway.brokers.aws.sqs.visibility import MessageChange
from laneway.errors import BrokerAwayError
from tests.support.aws.simulated_aws import DirectClients, SerialForwarder, SimulatedAWS


class NeverDeleted(SimulatedAWS):
    """Leaves the message of a finished job in its queue, and does not remember that the job has ended."""

    class clients_type(DirectClients):
        def _call(self, name: str, place: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
            return {} if operation == "delete_message_batch" else super()._call(name, place, operation, params)

    def _turn(self, turn: Turn) -> Answer:
        self.inflight.holding._ended.clear()
        return super()._turn(turn)


class DeletedBeforeItRuns(SimulatedAWS):
    """Deletes a message when it hands out its job."""

    def _turn(self, turn: Turn) -> Answer:
        answer = super()._turn(turn)
        for claim in answer.claims:
            claimed = self.inflight.claims.get(claim.ref)
            self.turns._changer.carry_out(MessageChange(held.message) for held in (claimed.held if claimed else ()))
        return answer


class NoGroups(SimulatedAWS):
    """Sends each call of a key in a group of its own."""

    class clients_type(DirectClients):
        def _call(self, name: str, place: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
            for entry in params["Entries"] if operation == "send_message_batch" else ():
                if "MessageDeduplicationId" in entry:
                    entry["MessageGroupId"] = entry["MessageDeduplicationId"]
            return super()._call(name, place, operation, params)


class DelayedJobsAreDropped(SimulatedAWS):
    """Takes a delayed job from the table before SQS has stored it."""

    class forwarder_type(SerialForwarder):
        def _send(self, table: Any, sqs_queue: Any, items: Any, found: ForwardResult) -> None:
            found.sent += items


class BuryingLoses(SimulatedAWS):
    """Deletes what is to be buried, and stores it nowhere."""

    class clients_type(DirectClients):
        def _call(self, name: str, place: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
            if operation == "send_message_batch" and "-deadletter" in params["QueueUrl"]:
                return {"Successful": [{"Id": entry["Id"]} for entry in params["Entries"]]}
            return super()._call(name, place, operation, params)


class NotKeptHidden(SimulatedAWS):
    """Does not renew what it holds."""

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        """Nothing is renewed."""


class LostSendIsTakenForDone(SimulatedAWS):
    """Takes a request that was lost for one that was carried out."""

    def _enqueue(self, jobs: Any) -> None:
        try:
            super()._enqueue(jobs)
        except BrokerAwayError:
            pass


class PauseIsNotRead(SimulatedAWS):
    """Hands out jobs of a paused queue."""

    def _turn(self, turn: Turn) -> Answer:
        self.heartbeat._paused.clear()
        return super()._turn(turn)
