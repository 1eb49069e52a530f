"""Clients: the boto3 clients for SQS, SNS, STS and DynamoDB, safe for threads and forks.

boto3 has no types, so it stays behind the methods `sqs`, `sns`, `sts` and `dynamodb`, which take and return plain
dicts. boto3 itself finds the credentials; they are neither read nor kept here. Only botocore repeats a request, a
few times with backoff. After that the caller gets a Laneway error (`errors`).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from typing import Any

import botocore.session
from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ... import __version__
from .errors import explain
from .settings import AWSSettings

#: How often botocore makes a request at most.
ATTEMPTS = 3
CONNECT_TIMEOUT_S = 5
#: For an answer; a receive is answered only after its own wait.
READ_TIMEOUT_S = 10
#: Connections that are kept; there may be more at a time.
POOL = 50

_SQS, _RECEIVING, _DYNAMODB, _SNS, _STS = "sqs", "sqs receiving", "dynamodb", "sns", "sts"


class Clients:
    """SQS, SNS and DynamoDB. Safe to call from several threads, and after a fork: the child gets its own clients."""

    def __init__(self, settings: AWSSettings) -> None:
        self.settings = settings
        #: The requests that were sent, botocore's repeats included, such as "sqs.SendMessageBatch".
        self.requests: Counter[str] = Counter()
        self._given: dict[str, Any] = {}
        self._clients: dict[str, Any] = {}
        self._renew()
        _all_clients.add(self)

    @classmethod
    def of(
        cls, settings: AWSSettings, *, sqs: Any = None, dynamodb: Any = None, sns: Any = None, sts: Any = None
    ) -> Clients:
        """Use ready boto3 clients. They stay the caller's, who closes them, and does not use them before a fork."""
        clients = cls(settings)
        for name, client in ((_SQS, sqs), (_RECEIVING, sqs), (_DYNAMODB, dynamodb), (_SNS, sns), (_STS, sts)):
            if client is not None:
                clients._given[name] = client
        for client in filter(None, (sqs, dynamodb, sns, sts)):
            clients._count(client)
        return clients

    def sqs(self, operation: str, **params: Any) -> dict[str, Any]:
        """Call SQS; `operation` is a method of boto3's client, such as send_message_batch."""
        name = _RECEIVING if operation == "receive_message" else _SQS
        return self._call(name, f"SQS {self.settings.where}", operation, params)

    def dynamodb(self, operation: str, **params: Any) -> dict[str, Any]:
        """Call DynamoDB; `operation` is a method of boto3's client, such as update_item."""
        return self._call(_DYNAMODB, f"DynamoDB {self.settings.where}", operation, params)

    def sns(self, operation: str, **params: Any) -> dict[str, Any]:
        """Call SNS; `operation` is a method of boto3's client, such as publish_batch."""
        return self._call(_SNS, f"SNS {self.settings.where}", operation, params)

    def sts(self, operation: str, **params: Any) -> dict[str, Any]:
        """Call STS; `operation` is a method of boto3's client, such as get_caller_identity."""
        return self._call(_STS, f"STS {self.settings.where}", operation, params)

    @property
    def region(self) -> str:
        """The region that requests go to: a topic's ARN has it."""
        if self.settings.region is not None:
            return self.settings.region
        try:
            region: str = self._client(_SNS).meta.region_name
        except BotoCoreError as error:
            raise explain(error, f"SNS {self.settings.where}", "sns") from None
        return region

    def close(self) -> None:
        """Close the connections; calling again makes new ones."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _call(self, name: str, place: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        action = f"{name.partition(' ')[0]}:{''.join(map(str.capitalize, operation.split('_')))}"
        try:
            answer: dict[str, Any] = getattr(self._client(name), operation)(**params)
        except (BotoCoreError, ClientError, OSError) as error:
            # Without its cause: AWS's text may repeat what was signed, and `explain` has said all else.
            raise explain(error, place, action) from None
        return answer

    # -- making ----------------------------------------------------------------------------------------

    def _client(self, name: str) -> Any:
        return self._given.get(name) or self._clients.get(name) or self._make(name)

    def _make(self, name: str) -> Any:
        with self._lock:  # two threads must not make two; and making one is not safe in botocore
            if name not in self._clients:
                self._clients[name] = self._made(name)
                self._count(self._clients[name])
            return self._clients[name]

    def _made(self, name: str) -> Any:
        # A session of our own: boto3's default one is shared with the rest of the program.
        session = Session(botocore_session=botocore.session.get_session())
        settings = self.settings
        # A server that is not Amazon's takes any region; signing needs one.
        region = settings.region or session.region_name or ("us-east-1" if settings.endpoint else None)
        endpoint = settings.endpoint
        if name in (_SQS, _RECEIVING) and endpoint is None:
            endpoint = settings.sqs_endpoint
        return session.client(
            name.partition(" ")[0],
            region_name=region,
            endpoint_url=endpoint,
            config=Config(
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S + (settings.wait_s if name == _RECEIVING else 0),
                max_pool_connections=POOL,
                tcp_keepalive=True,
                user_agent_extra=f"laneway/{__version__}",
            ),
        )

    def _count(self, client: Any) -> None:
        lock, requests = self._counting, self.requests

        def sent(event_name: str, **_: Any) -> None:
            name = event_name.removeprefix("before-send.")
            with lock:
                requests[name] += 1

        client.meta.events.register(f"before-send.{client.meta.service_model.service_id.hyphenize()}", sent)

    # -- forks -----------------------------------------------------------------------------------------

    def _renew(self) -> None:
        """In a forked process: locks may be held by threads that it does not have, and connections are the parent's.

        The parent's clients are kept and left alone: closing them would need their own locks.
        """
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        if self._clients:
            _parents.append(self._clients)
        self._clients = {}


_all_clients: weakref.WeakSet[Clients] = weakref.WeakSet()
_parents: list[dict[str, Any]] = []


def _renew_all() -> None:
    for clients in tuple(_all_clients):
        clients._renew()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_renew_all)
