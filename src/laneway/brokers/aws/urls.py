"""What an SQS URL says."""

from __future__ import annotations

from dataclasses import dataclass

from ...config import Url


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the queues and tables are, and how they are used."""

    region: str | None = None
    #: Another server than Amazon's.
    endpoint: str | None = None
    #: The account that the queues belong to, if it is not that of the credentials.
    account: str | None = None
    #: The SQS queue, without `.fifo`, that is the queue `default`.
    default: str = "default"
    #: Its URL, if that was given.
    default_url: str | None = None
    #: Before the names of all other queues, and of tables.
    prefix: str = ""
    #: One table for all queues; None: each queue has its own, if there is one, named as it with `table_suffix`.
    table: str | None = None
    table_suffix: str = ""
    #: Over how many hash values delayed jobs are spread.
    partitions: int = 4
    #: Seconds between two polls of a table.
    poll_s: float = 300.0
    #: Seconds that a receive waits for messages.
    wait_s: int = 20
    #: The largest message, and the largest batch of them, in bytes.
    max_body: int = 262_144

    @classmethod
    def from_url(cls, url: Url) -> Settings:
        raise NotImplementedError
