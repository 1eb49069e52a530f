"""`python -m tests.support.aws.moto_server PORT`: moto's server, fixed where it breaks promises of AWS that tests need.

- It carries out one request at a time, except that long polls wait in parallel. Otherwise moto sometimes hands one
  message to two receivers, loses a message that is sent while another is deleted, and lets two conditional writes
  pass at once.
- Sequence numbers grow. Those of moto are random.
- When several messages of a group become visible again, the first message comes first.

It is also faster: connections are kept open, and counting a queue, which moto does several times per message, is
cheap.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from moto.core.utils import unix_time_millis
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.sqs.models import Message, Queue, SQSBackend
from werkzeug.serving import make_server

_FIRST_SEQUENCE = 18_849_496_460_467_696_128
#: How often a long poll looks.
_LOOK_S = 0.02
_lock = threading.RLock()
_sequences = itertools.count()

_receive = SQSBackend.receive_message
_add = Queue.add_message


def receive(self: SQSBackend, queue_name: str, count: int, wait_s: float, hidden_s: int, names: Any = None) -> Any:
    until = time.monotonic() + wait_s
    while True:
        with _lock:
            queue = self.get_queue(queue_name)
            queue.pending_messages.difference_update([each for each in queue.pending_messages if each.visible])
            found = _receive(self, queue_name, count, 0, hidden_s, names)
        if found or time.monotonic() >= until:
            return found
        time.sleep(_LOOK_S)


def add(self: Queue, message: Message) -> None:
    if message.sequence_number is not None:
        message.sequence_number = str(_FIRST_SEQUENCE + 256 * next(_sequences))
    _add(self, message)


def is_young(self: SQSBackend, queue_name: str, message: Message) -> bool:
    sent_at = message.sent_timestamp
    kept_s: int = self.get_queue(queue_name).message_retention_period  # moto sets it by its name
    return sent_at is None or time.time() - sent_at / 1000 < kept_s


def messages(self: Queue) -> list[Message]:
    now = unix_time_millis()
    return [each for each in self._messages if now > each.visible_at and now >= each.delayed_until]


def count_delayed(self: Queue) -> int:
    now = unix_time_millis()
    return sum(now < each.delayed_until for each in self._messages)


def count_hidden(self: Queue) -> int:
    now = unix_time_millis()
    return sum(now <= each.visible_at for each in self._messages)


class Handler(MotoRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nobody reads it."""


class OneByOne:
    """The application, asked for one thing at a time, but for receives, which see to that themselves."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("HTTP_X_AMZ_TARGET", "") == "AmazonSQS.ReceiveMessage":
            return self._application(environ, start_response)
        with _lock:
            return list(self._application(environ, start_response))


def main(port: int) -> None:
    SQSBackend.receive_message = receive
    SQSBackend.is_message_valid_based_on_retention_period = is_young
    Queue.add_message = add
    Queue.messages = property(messages)
    Queue.approximate_number_of_messages_delayed = property(count_delayed)
    Queue.approximate_number_of_messages_not_visible = property(count_hidden)
    os.environ["MOTO_PORT"] = str(port)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneByOne(DomainDispatcherApplication(create_backend_app))
    make_server("127.0.0.1", port, application, threaded=True, request_handler=Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
