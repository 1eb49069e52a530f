"""The operations of SQS: parameters in, responses out. `queues` owns the life of a message."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from tests.support.aws.endpoints import ACCOUNT, REGION
from tests.support.aws.fake import messages
from tests.support.aws.fake.attributes import NUMBERS, check_asked, check_attributes, check_name, redrive_of
from tests.support.aws.fake.faults import Faults, Refusal, invalid, missing
from tests.support.aws.fake.queues import Queue

MAX_ENTRIES = 10
#: SQS does not make a queue again so soon after it was deleted, nor purges it twice.
_QUIET_S = 60.0
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")

Params = dict[str, Any]


class SQS:
    """All queues of one account in one region. `manual` is whether time passes only when a test says so."""

    def __init__(self, now: Callable[[], float], faults: Faults, *, manual: bool) -> None:
        self._now, self._faults, self._manual = now, faults, manual
        self.queues: dict[str, Queue] = {}
        self._deleted: dict[str, float] = {}

    # -- queues ----------------------------------------------------------------------------------------

    def create_queue(self, params: Params, host: str) -> Params:
        name, attributes = params["QueueName"], params.get("Attributes") or {}
        check_name(name, attributes)
        check_attributes(attributes, fifo=name.endswith(".fifo"))
        if (known := self.queues.get(name)) is not None:
            now = self._told(known)
            for key, value in attributes.items():
                if not _alike(key, now.get(key), value):
                    message = f"A queue already exists with the same name and a different value for attribute {key}"
                    raise Refusal("QueueNameExists", message)
            return {"QueueUrl": self._url(known, host)}
        if self._now() - self._deleted.get(name, float("-inf")) < _QUIET_S:
            message = (
                "You must wait 60 seconds after deleting a queue before you can create another with the same name."
            )
            raise Refusal("QueueDeletedRecently", message)
        queue = Queue(name, f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}", self._now, self._faults, self._find)
        self._check_redrive(queue, attributes)
        queue.attributes.update(attributes)
        queue.tags.update(params.get("tags") or {})
        self.queues[name] = queue
        return {"QueueUrl": self._url(queue, host)}

    def get_queue_url(self, params: Params, host: str) -> Params:
        queue = self.queues.get(params["QueueName"])
        if queue is None or params.get("QueueOwnerAWSAccountId", ACCOUNT) != ACCOUNT:
            raise _unknown()
        return {"QueueUrl": self._url(queue, host)}

    def delete_queue(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        del self.queues[queue.name]
        self._deleted[queue.name] = self._now()
        queue.wake()
        return {}

    def get_queue_attributes(self, params: Params, host: str) -> Params:
        queue, names = self._queue(params), params.get("AttributeNames") or []
        check_asked(names)
        told = self._told(queue)
        return {"Attributes": told if "All" in names else {name: told[name] for name in names if name in told}}

    def set_queue_attributes(self, params: Params, host: str) -> Params:
        queue, attributes = self._queue(params), params.get("Attributes") or {}
        check_attributes(attributes, fifo=queue.fifo)
        if attributes.get("FifoQueue", "true") != "true":
            raise Refusal("InvalidAttributeValue", "Invalid value for the parameter FifoQueue.")
        self._check_redrive(queue, attributes)
        queue.attributes.update(attributes)
        queue.modified_at = self._now()
        return {}

    def purge_queue(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        if queue.purged_at is not None and self._now() - queue.purged_at < _QUIET_S:
            message = f"Only one PurgeQueue operation on {queue.name} is allowed every 60 seconds."
            raise Refusal("PurgeQueueInProgress", message, 403)
        queue.purged_at = self._now()
        queue.clear()
        return {}

    def tag_queue(self, params: Params, host: str) -> Params:
        self._queue(params).tags.update(params["Tags"])
        return {}

    def untag_queue(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        for key in params["TagKeys"]:
            queue.tags.pop(key, None)
        return {}

    def list_queue_tags(self, params: Params, host: str) -> Params:
        return {"Tags": self._queue(params).tags}

    def list_queues(self, params: Params, host: str) -> Params:
        """Laneway never asks for this: whoever may use a queue need not be allowed to see all others."""
        message = "User is not authorized to perform: sqs:ListQueues"
        raise Refusal("AccessDeniedException", message, 403)

    # -- messages --------------------------------------------------------------------------------------

    def send_message(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        answer = self._send(queue, params)
        queue.wake()
        return answer

    def send_message_batch(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        entries = _entries(params, "SendMessageBatchRequestEntry")
        for entry in entries:  # without a group or an id, one entry fails all of them
            queue.check_group(entry)
        total = sum(messages.size(entry) for entry in entries if entry.get("MessageBody"))
        if total > (limit := max(queue.number("MaximumMessageSize"), 262_144)):
            message = f"Batch requests cannot be longer than {limit} bytes. You have sent {total} bytes."
            raise Refusal("BatchRequestTooLong", message)
        answer = _each(entries, lambda entry: self._send(queue, entry))
        queue.wake()
        return answer

    def receive_message(self, params: Params, host: str) -> Params | Awaitable[Params]:
        queue = self._queue(params)
        most = params.get("MaxNumberOfMessages", 1)
        if not 1 <= most <= 10:
            raise invalid("MaxNumberOfMessages", most, "Must be between 1 and 10, if provided.")
        wait_s = params.get("WaitTimeSeconds", queue.number("ReceiveMessageWaitTimeSeconds"))
        if not 0 <= wait_s <= 20:
            raise invalid("WaitTimeSeconds", wait_s, "Must be >= 0 and <= 20, if provided.")
        hidden_s = params.get("VisibilityTimeout", queue.number("VisibilityTimeout"))
        if not 0 <= hidden_s <= 43_200:
            raise invalid("VisibilityTimeout", hidden_s, "Must be between 0 and 43200.")
        attempt = params.get("ReceiveRequestAttemptId")
        if attempt is not None and not queue.fifo:
            reason = "The request include parameter that is not valid for this queue type."
            raise invalid("ReceiveRequestAttemptId", attempt, reason)
        system = {*(params.get("AttributeNames") or ()), *(params.get("MessageSystemAttributeNames") or ())}
        wanted = params.get("MessageAttributeNames") or []

        def receive() -> Params:
            if wait_s == 0 and self._faults.happens(self._faults.misses):
                self._faults.missed += 1
                return {}
            got = queue.receive(most, hidden_s, attempt)
            if queue.fifo and len(got) > 1 and self._faults.happens(self._faults.reordered):
                self._faults.overtaken += 1
                self._faults.chance.shuffle(got)
            return {"Messages": [message.shown(handle, system, wanted) for message, handle in got]} if got else {}

        answer = receive()
        if answer or wait_s == 0 or self._manual:
            return answer
        return self._wait(queue, receive, wait_s)

    async def _wait(self, queue: Queue, receive: Callable[[], Params], wait_s: float) -> Params:
        """Receive as soon as there is something, or nothing when the time is up."""
        until = self._now() + wait_s
        changed = asyncio.Event()
        queue.waiting.append(changed.set)
        try:
            while (left := until - self._now()) > 0:
                if (next_at := queue.next_at()) is not None:
                    # A little late rather than a little early, and again.
                    left = min(left, max(next_at - self._now(), 0.0) + 0.001)
                try:
                    await asyncio.wait_for(changed.wait(), left)
                except TimeoutError:
                    pass
                changed.clear()
                if self.queues.get(queue.name) is not queue:
                    raise _unknown()
                if answer := receive():
                    return answer
            return {}
        finally:
            queue.waiting.remove(changed.set)

    def delete_message(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        queue.delete(params["ReceiptHandle"])
        queue.wake()
        return {}

    def delete_message_batch(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        entries = _entries(params, "DeleteMessageBatchRequestEntry")
        answer = _each(entries, lambda entry: queue.delete(entry["ReceiptHandle"]))
        queue.wake()
        return answer

    def change_message_visibility(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        queue.change(params["ReceiptHandle"], params["VisibilityTimeout"])
        queue.wake()
        return {}

    def change_message_visibility_batch(self, params: Params, host: str) -> Params:
        queue = self._queue(params)
        entries = _entries(params, "ChangeMessageVisibilityBatchRequestEntry")
        answer = _each(entries, lambda entry: queue.change(entry["ReceiptHandle"], entry.get("VisibilityTimeout", 0)))
        queue.wake()
        return answer

    # -- inside ----------------------------------------------------------------------------------------

    def _send(self, queue: Queue, entry: Params) -> Params:
        message = queue.send(entry)
        answer = {"MessageId": message.id, "MD5OfMessageBody": messages.md5(entry["MessageBody"])}
        if attributes := entry.get("MessageAttributes"):
            answer["MD5OfMessageAttributes"] = messages.md5_of_attributes(attributes)
        if system := entry.get("MessageSystemAttributes"):
            answer["MD5OfMessageSystemAttributes"] = messages.md5_of_attributes(system)
        if message.sequence is not None:
            answer["SequenceNumber"] = str(message.sequence)
        return answer

    def _queue(self, params: Params) -> Queue:
        account, _, name = params["QueueUrl"].rstrip("/").rpartition("/")
        queue = self.queues.get(name)
        if queue is None or account.rpartition("/")[2] != ACCOUNT:
            raise _unknown()
        return queue

    def _find(self, arn: str) -> Queue | None:
        queue = self.queues.get(arn.rpartition(":")[2])
        return queue if queue is not None and queue.arn == arn else None

    def _check_redrive(self, queue: Queue, attributes: dict[str, str]) -> None:
        policy = attributes.get("RedrivePolicy", "")
        if (redrive := redrive_of(policy)) is None:
            return
        target = self._find(redrive[0])
        if target is None:
            raise invalid("RedrivePolicy", policy, "Dead letter target does not exist.")
        if target.fifo != queue.fifo:
            raise invalid("RedrivePolicy", policy, "Dead-letter queue must be same type of queue as the source.")

    def _told(self, queue: Queue) -> dict[str, str]:
        counts = queue.counts
        told = {name: str(queue.number(name)) for name in NUMBERS}
        told |= {name: value for name, value in queue.attributes.items() if value}
        if queue.fifo:
            told = {"ContentBasedDeduplication": "false", "DeduplicationScope": "queue"} | told
            told = {"FifoThroughputLimit": "perQueue"} | told
        return (
            {"SqsManagedSseEnabled": "true"}
            | told
            | {
                "QueueArn": queue.arn,
                "ApproximateNumberOfMessages": str(counts.visible),
                "ApproximateNumberOfMessagesNotVisible": str(counts.in_flight),
                "ApproximateNumberOfMessagesDelayed": str(counts.delayed),
                "CreatedTimestamp": str(int(queue.created_at)),
                "LastModifiedTimestamp": str(int(queue.modified_at)),
            }
        )

    def _url(self, queue: Queue, host: str) -> str:
        return f"http://{host}/{ACCOUNT}/{queue.name}"


def _unknown() -> Refusal:
    return Refusal("QueueDoesNotExist", "The specified queue does not exist.")


def _alike(name: str, one: str | None, other: str) -> bool:
    if name.endswith("Policy") and one and other:
        return bool(json.loads(one) == json.loads(other))
    return (one or "") == other


def _entries(params: Params, kind: str) -> list[Params]:
    entries: list[Params] = params.get("Entries") or []
    if not entries:
        raise Refusal("EmptyBatchRequest", f"There should be at least one {kind} in the request.")
    if len(entries) > MAX_ENTRIES:
        message = f"Maximum number of entries per request are 10. You have sent {len(entries)}."
        raise Refusal("TooManyEntriesInBatchRequest", message)
    seen: set[str] = set()
    for entry in entries:
        if (id := entry.get("Id")) is None:
            raise missing(f"{kind}.Id")
        if not _ENTRY_ID.fullmatch(id):
            message = "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
            raise Refusal("InvalidBatchEntryId", f"{message} It can be at most 80 letters long.")
        if id in seen:
            raise Refusal("BatchEntryIdsNotDistinct", f"Id {id} repeated.")
        seen.add(id)
    return entries


def _each(entries: list[Params], act: Callable[[Params], Params | None]) -> Params:
    """Act on each entry by itself; those that are refused are told as failed."""
    answer: Params = {"Successful": []}
    for entry in entries:
        try:
            answer["Successful"].append({"Id": entry["Id"], **(act(entry) or {})})
        except Refusal as refusal:
            code, message = refusal.in_batches
            failed = {"Id": entry["Id"], "SenderFault": True, "Code": code, "Message": message}
            answer.setdefault("Failed", []).append(failed)
    return answer
