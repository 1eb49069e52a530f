"""Tests of encoding jobs as SQS messages and decoding messages into jobs."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from laneway.brokers.aws.sqs.message import (
    Message,
    MessageNote,
    OutgoingMessage,
    SQSQueue,
    entry_of,
    fitted,
    group_of,
    is_group,
    outgoing_of,
    read,
    refused_character,
    resend_of,
    size_of,
    waits_until,
    with_execute_after,
)
from laneway.jobs.data import Hints, Kind, NewJob
from laneway.jobs.ticket import execute_after

pytestmark = pytest.mark.unit

STANDARD = SQSQueue("q", "q", "http://localhost/1/q")
FIFO = SQSQueue("q", "q.fifo", "http://localhost/1/q.fifo", True)
TICKET = '{"_job_class":"Mail","_job_params":{"to":"é"}}'
KEYED = '{"_job_class":"Mail","_job_params":null,"_job_id":"a1"}'


def plain(**options: Any) -> OutgoingMessage:
    return outgoing_of(NewJob(queue="q", key="k1", body=TICKET, **options))


def keyed(key: str, identity: str = "a1", **options: Any) -> OutgoingMessage:
    return outgoing_of(NewJob(queue="q", key=key, body=KEYED, kind=Kind.KEYED, identity=identity, **options))


def received(entry: dict[str, Any], sqs_queue: SQSQueue = STANDARD, **system: str) -> Message:
    """The message that SQS would hand out for what was sent."""
    if "MessageGroupId" in entry:
        system.setdefault("MessageGroupId", entry["MessageGroupId"])
    raw = {
        "MessageId": "m1",
        "ReceiptHandle": "r1",
        "Body": entry["MessageBody"],
        "Attributes": {"ApproximateReceiveCount": "3", "SentTimestamp": "1700000000500", **system},
        "MessageAttributes": entry.get("MessageAttributes", {}),
    }
    return read(sqs_queue, raw, 1_000.0, 30.0)


def note_in(entry: dict[str, Any]) -> Any:
    attribute = entry["MessageAttributes"]["laneway"]
    assert attribute["DataType"] == "String"
    return msgspec.json.decode(attribute["StringValue"])


def test_a_plain_job_is_its_ticket_and_a_note() -> None:
    entry = entry_of(plain(headers={"trace": "1"}), "0", STANDARD, 0)
    assert entry["MessageBody"] == TICKET
    assert note_in(entry) == {"id": "k1", "headers": {"trace": "1"}}
    assert entry.keys() == {"Id", "MessageBody", "MessageAttributes"}  # no delay, which the queue may have set itself
    assert entry_of(plain(), "0", STANDARD, 7)["DelaySeconds"] == 7


def test_a_plain_job_may_have_a_group_for_fair_queues() -> None:
    entry = entry_of(plain(hints=Hints(group="tenant-1")), "0", STANDARD, 0)
    assert entry["MessageGroupId"] == "tenant-1"
    assert "MessageDeduplicationId" not in entry
    assert resend_of(received(entry)).note.group == "tenant-1"


def test_a_keyed_call_has_its_key_as_group_and_an_id_of_its_own() -> None:
    entry = entry_of(keyed("order-1"), "0", FIFO, 0)
    assert (entry["MessageGroupId"], entry["MessageDeduplicationId"]) == ("order-1", "a1-0-0")
    assert note_in(entry) == {"id": "a1", "key": "order-1"}
    assert "DelaySeconds" not in entry_of(keyed("order-1"), "0", FIFO, 5)


def test_the_deduplication_id_changes_with_attempt_and_hop() -> None:
    message = received(entry_of(keyed("k"), "0", FIFO, 0), FIFO)
    ids = {
        entry_of(outgoing, "0", FIFO, 0)["MessageDeduplicationId"]
        for outgoing in (keyed("k"), resend_of(message), resend_of(message, attempt=1), resend_of(message, hop=7))
    }
    assert ids == {"a1-0-0", "a1-0-1", "a1-1-1", "a1-0-7"}
    long = entry_of(keyed("k", "a b" * 50), "0", FIFO, 0)["MessageDeduplicationId"]
    assert is_group(long)


@pytest.mark.parametrize("key", ["order-1", "a:b/c?d=e&f", "x" * 128, "!", "~", "a#b"])
def test_a_key_that_fits_is_its_group(key: str) -> None:
    assert group_of(key) == key


@pytest.mark.parametrize("key", ["x" * 129, "a b", "é", "\t", "#a", "#" + "0" * 64])
def test_a_key_that_does_not_fit_has_a_digest_as_group(key: str) -> None:
    assert group_of(key) == "#" + hashlib.sha256(key.encode()).hexdigest()
    assert is_group(group_of(key))
    message = received(entry_of(keyed(key), "0", FIFO, 0), FIFO)
    assert message.note.key == key


def test_the_size_is_what_sqs_counts() -> None:
    outgoing = plain()
    outgoing.attributes = {
        "n": {"DataType": "Number", "StringValue": "12"},
        "b": {"DataType": "Binary", "BinaryValue": b"123"},
    }
    note = entry_of(outgoing, "0", STANDARD, 0)["MessageAttributes"]["laneway"]["StringValue"]
    expected = len(TICKET.encode()) + len("laneway" + "String" + note) + len("nNumber12") + len("bBinary") + 3
    assert size_of(outgoing) == expected


def test_a_message_is_read_as_it_was_sent() -> None:
    note = MessageNote("k1", "", 1.5, 3, 4, 1, 2, "boom", 9.0, {"a": "b"}, "g", 7.0)
    foreign = {"shoryuken_class": {"DataType": "String", "StringValue": "X"}}
    message = received(entry_of(OutgoingMessage(TICKET, note, foreign), "0", STANDARD, 0))
    assert (message.body, message.note, message.attributes) == (TICKET, note, foreign)
    assert (message.receive_count, message.sent_at, message.kind) == (3, 1_700_000_000.5, Kind.PLAIN)
    assert (message.received_at, message.hidden_until) == (1_000.0, 1_030.0)
    sent_on = resend_of(message, retry_count=4, error="again")
    assert (sent_on.body, sent_on.attributes) == (TICKET, foreign)
    assert sent_on.note == msgspec.structs.replace(note, retry_count=4, error="again", hop=3)
    assert message.note.hop == 2


@pytest.mark.parametrize(
    "attribute",
    [
        None,
        {"DataType": "String", "StringValue": "no JSON"},
        {"DataType": "String", "StringValue": '{"id":7}'},
        {"DataType": "String", "StringValue": '{"id":""}'},
        {"DataType": "Binary", "BinaryValue": b"\xff"},
    ],
)
def test_a_message_without_a_note_of_ours_is_a_job_too(attribute: dict[str, Any] | None) -> None:
    attributes = {"MessageAttributes": {} if attribute is None else {"laneway": attribute}}
    message = received({"MessageBody": TICKET, **attributes})
    assert (message.note, message.attributes) == (MessageNote("m1"), {})
    message = received({"MessageBody": KEYED, "MessageGroupId": "Group", **attributes}, FIFO, SequenceNumber="18")
    assert (message.note, message.kind, message.sequence) == (MessageNote("a1", "Group"), Kind.KEYED, 18)
    assert received({"MessageBody": "no ticket, _job_id or not"}).note.id == "m1"
    assert received({"MessageBody": '{"_job_id":7}'}).note.id == "m1"


def test_what_sqs_would_refuse_in_a_note_is_escaped() -> None:
    message = received(
        entry_of(OutgoingMessage("b", MessageNote("k", error="\ufffe\uffff\x01\ud800")), "0", STANDARD, 0)
    )
    text = entry_of(resend_of(message), "0", STANDARD, 0)["MessageAttributes"]["laneway"]["StringValue"]
    assert refused_character(text) is None
    assert message.note.error == "\ufffe\uffff\x01\\ud800"


@pytest.mark.parametrize(("text", "found"), [("a\x01", "U+0001"), ("\uffff", "U+FFFF"), ("\x00", "U+0000")])
def test_characters_that_sqs_refuses_are_found(text: str, found: str) -> None:
    assert refused_character(text) == found
    assert refused_character("\t\n\r é 😀 \x7f\ufffd") is None


@pytest.mark.parametrize("error", ["x" * 50_000, "é\n" * 20_000, "\x01" * 50_000, "\ud800" * 9_000, "\uffff" * 9_000])
@pytest.mark.parametrize("limit", [262_144, 2_048, 1_024])
def test_an_error_is_cut_to_what_a_message_has_room_for(error: str, limit: int) -> None:
    outgoing = fitted(OutgoingMessage("b" * 900, MessageNote("k", error=f"{error}the end")), limit)
    assert size_of(outgoing) <= limit
    assert outgoing.note.error is not None
    assert outgoing.note.error.startswith("…")
    assert outgoing.note.error.endswith("the end")
    assert len(outgoing.note.error) > 10
    short = OutgoingMessage("b", MessageNote("k", error="short"))
    assert fitted(short, limit) is short
    assert fitted(OutgoingMessage("b" * 2_048, MessageNote("k", error="short")), 2_048).note.error is None


@pytest.mark.parametrize(
    ("body", "with_it"),
    [
        (TICKET, '{"_job_class":"Mail","_job_params":{"to":"é"},"_execute_after":5}'),
        (KEYED, '{"_job_class":"Mail","_job_params":null,"_execute_after":5,"_job_id":"a1"}'),
        ('{"_job_class":"A","x":[1.50]}', '{"_job_class":"A","x":[1.50],"_execute_after":5}'),
        ('{"_job_class":""}', '{"_job_class":"","_execute_after":5}'),
    ],
)
def test_a_ticket_carries_its_time(body: str, with_it: str) -> None:
    assert with_execute_after(body, 5) == with_it
    assert with_execute_after(with_execute_after(body, 9), 5) == with_it
    assert with_execute_after(with_it, None) == body
    assert (execute_after(with_it), execute_after(body)) == (5, None)
    assert waits_until(with_it, MessageNote("k", due=4.5)) == 5
    assert waits_until(body, MessageNote("k", due=4.5)) is None


def test_a_time_in_a_ticket_is_rounded_up_and_may_be_nonsense() -> None:
    assert execute_after('{"_job_class":"A","_execute_after":5.2}') == 6
    for wrong in ('"5"', "null", "true", "{}", "1e999", "1" + "0" * 400):
        assert execute_after(f'{{"_job_class":"A","_execute_after":{wrong}}}') is None


def test_what_is_no_ticket_goes_by_its_note() -> None:
    for body in ("plain text", "[1]", '"_execute_after"'):
        assert with_execute_after(body, 5) == body
        assert execute_after(body) is None
        assert waits_until(body, MessageNote("k", due=4.5)) == 4.5
        assert waits_until(body, MessageNote("k")) is None
    for body in ('{"_execute_after":5}', "{}", '{"_job_class":7,"_execute_after":5}'):
        assert waits_until(body, MessageNote("k", due=4.5)) == 4.5
        assert waits_until(body, MessageNote("k")) is None
    assert waits_until('{"_job_class":"A","_execute_after":5}', MessageNote("k", due=4.5, value=True)) == 4.5
