"""Tests that SQS behaves the same on moto's server and on the fake; else one of the two servers is wrong.

Where moto is known to differ from AWS, the fake follows AWS: see test_fake_sqs.py.
"""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from tests.integration.aws.boto_calls import bodies, code, delete, hide, receive, send
from tests.support.aws.servers import Place


def test_a_message_comes_with_all_that_was_sent_with_it(aws: Place) -> None:
    aws.create_queue("q")
    attributes = {
        "laneway": {"DataType": "String", "StringValue": '{"id":"1"}'},
        "raw": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
        "n": {"DataType": "Number", "StringValue": "12"},
    }
    send(aws, "q", "grüße", MessageAttributes=attributes, MessageGroupId="tenant-1")
    [got] = receive(aws, "q")
    assert got["Body"] == "grüße"
    assert got["MessageAttributes"] == attributes
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    assert got["Attributes"]["MessageGroupId"] == "tenant-1"
    assert int(got["Attributes"]["ApproximateFirstReceiveTimestamp"]) >= int(got["Attributes"]["SentTimestamp"])
    assert aws.counts("q") == (0, 1, 0)
    assert [each["Id"] for each in delete(aws, "q", got)["Successful"]] == ["0"]
    assert aws.counts("q") == (0, 0, 0)
    assert not delete(aws, "q", got).get("Failed"), "deleting twice is no error"


def test_what_is_given_back_is_there_again_and_counted(aws: Place) -> None:
    aws.create_queue("q", VisibilityTimeout=60)
    send(aws, "q", "one")
    [first] = receive(aws, "q")
    assert receive(aws, "q") == []
    hide(aws, "q", first, 0)
    [again] = receive(aws, "q", WaitTimeSeconds=2)
    assert again["MessageId"] == first["MessageId"]
    assert again["ReceiptHandle"] != first["ReceiptHandle"]
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_delay_hides_and_a_long_poll_waits_for_its_end(aws: Place) -> None:
    aws.create_queue("q")
    send(aws, "q", "later", DelaySeconds=1)
    assert aws.counts("q")[2] == 1
    assert receive(aws, "q") == []
    assert bodies(receive(aws, "q", WaitTimeSeconds=5)) == ["later"]


def test_a_group_is_in_order_and_locked_while_one_of_it_is_in_flight(aws: Place) -> None:
    aws.create_queue("q.fifo")
    send(aws, "q.fifo", "a1", "a2", "a3", MessageGroupId="a")
    send(aws, "q.fifo", "b1", MessageGroupId="b")
    got = receive(aws, "q.fifo", MaxNumberOfMessages=2)
    assert bodies(got) == ["a1", "a2"]
    numbers = [got[0]["Attributes"]["SequenceNumber"], got[1]["Attributes"]["SequenceNumber"]]
    assert numbers == sorted(numbers)
    assert [len(number) for number in numbers] == [20, 20]
    assert bodies(receive(aws, "q.fifo")) == ["b1"], "a3 waits behind those in flight"
    delete(aws, "q.fifo", got[0])
    assert receive(aws, "q.fifo") == []
    delete(aws, "q.fifo", got[1])
    assert bodies(receive(aws, "q.fifo")) == ["a3"]


def test_the_head_of_a_group_that_is_hidden_holds_back_the_rest(aws: Place) -> None:
    aws.create_queue("q.fifo")
    send(aws, "q.fifo", "a1", "a2", "a3", MessageGroupId="a")
    head, *rest = receive(aws, "q.fifo")
    hide(aws, "q.fifo", head, 30)
    for message in rest:
        hide(aws, "q.fifo", message, 0)
    assert receive(aws, "q.fifo") == []
    hide(aws, "q.fifo", head, 0)
    assert bodies(receive(aws, "q.fifo", WaitTimeSeconds=2)) == ["a1", "a2", "a3"]


def test_what_nobody_deletes_comes_back_in_its_order(aws: Place) -> None:
    aws.create_queue("q.fifo")
    send(aws, "q.fifo", "a1", "a2", "a3", MessageGroupId="a")
    assert bodies(receive(aws, "q.fifo", VisibilityTimeout=1)) == ["a1", "a2", "a3"]
    assert bodies(receive(aws, "q.fifo", WaitTimeSeconds=5)) == ["a1", "a2", "a3"]


def test_a_deduplication_id_is_taken_once(aws: Place) -> None:
    aws.create_queue("q.fifo")
    for _ in range(2):
        answer = send(aws, "q.fifo", "one", MessageGroupId="a", MessageDeduplicationId="same")
        assert len(answer["Successful"]) == 1
    assert bodies(receive(aws, "q.fifo")) == ["one"]


def test_received_too_often_it_is_among_the_dead_letters(aws: Place) -> None:
    aws.create_with_dead_letters("q", max_receives=2)
    send(aws, "q", "poison", MessageAttributes={"a": {"DataType": "String", "StringValue": "x"}})
    for _ in range(2):
        [got] = receive(aws, "q", WaitTimeSeconds=2)
        hide(aws, "q", got, 0)
    assert receive(aws, "q") == []
    [dead] = receive(aws, "q-deadletter", WaitTimeSeconds=2)
    assert dead["MessageId"] == got["MessageId"]
    assert dead["MessageAttributes"]["a"]["StringValue"] == "x"


def test_what_is_wrong_with_a_request_has_the_names_of_aws(aws: Place) -> None:
    sqs, url = aws.sqs_client, aws.create_queue("q")
    fifo = aws.create_queue("q.fifo")
    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as error:
        sqs.get_queue_url(QueueName="nowhere")
    assert code(error) == "AWS.SimpleQueueService.NonExistentQueue"
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.send_message(QueueUrl=url + "x", MessageBody="one")
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="nonsense")
    with pytest.raises(ClientError) as error:
        sqs.send_message(QueueUrl=url, MessageBody="one", DelaySeconds=901)
    assert code(error) == "InvalidParameterValue"
    with pytest.raises(ClientError) as error:
        sqs.send_message(QueueUrl=fifo, MessageBody="one", MessageGroupId="a")
    assert code(error) == "InvalidParameterValue"
    with pytest.raises(ClientError) as error:
        sqs.send_message(QueueUrl=fifo, MessageBody="1", MessageGroupId="a", MessageDeduplicationId="1", DelaySeconds=1)
    assert code(error) == "InvalidParameterValue"
    with pytest.raises(ClientError) as error:
        sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11)
    assert code(error) == "InvalidParameterValue"
    with pytest.raises(ClientError) as error:
        send(aws, "q", *"12345678901")
    assert code(error).endswith("TooManyEntriesInBatchRequest")
    with pytest.raises(ClientError) as error:
        sqs.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "7"})
    assert code(error) == "QueueAlreadyExists"


def test_a_queue_tells_its_settings(aws: Place) -> None:
    url = aws.create_with_dead_letters("q.fifo", max_receives=7, VisibilityTimeout=5)
    told = aws.sqs_client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert told["VisibilityTimeout"] == "5"
    assert told["FifoQueue"] == "true"
    assert told["QueueArn"] == aws.arn(url)
    policy = json.loads(told["RedrivePolicy"])
    assert policy["deadLetterTargetArn"].endswith(":q-deadletter.fifo")
    assert int(policy["maxReceiveCount"]) == 7
    aws.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "9"})
    some = aws.sqs_client.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert some == {"VisibilityTimeout": "9"}
    aws.sqs_client.purge_queue(QueueUrl=url)
    aws.sqs_client.delete_queue(QueueUrl=url)
    with pytest.raises(aws.sqs_client.exceptions.QueueDoesNotExist):
        aws.queue_url("q.fifo")
