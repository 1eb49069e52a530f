"""What tests of AWS run against behaves as AWS does, and the fake and moto alike."""

from __future__ import annotations

from tests.aws.servers import Place


def test_messages_come_and_go(aws: Place) -> None:
    url = aws.create_queue("q")
    aws.sqs_client.send_message(QueueUrl=url, MessageBody="one")
    [got] = aws.receive_all("q")
    assert got["Body"] == "one"
    assert aws.counts("q") == (0, 1, 0)
    aws.sqs_client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    assert aws.counts("q") == (0, 0, 0)
