"""RetryStateRows: the retry state of jobs whose message stays: rows under `laneway-state`, by the job's id.

SQS cannot change a message. The message of a failed keyed call must stay at the head of its group, so its failures
are stored here, and so are the deaths of any job. The rows have no `perform_at`, so they are never taken for delayed
jobs. Apart from `retry_store`: the table builds on these rows, and `retry_store` looks up the table.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from .client import Item, TableClient, attribute, key, number, real, text

_STATE = "laneway-state"
#: SQS keeps a message for 14 days at most.
_KEPT_S = 15 * 86_400.0


class RetryState(msgspec.Struct):
    """What has happened to a job since its message was sent."""

    retry_count: int = -1
    attempt: int = 0
    deaths: int = 0
    error: str | None = None
    not_before: float = 0.0


class RetryStateRows(TableClient):
    """The rows of a table that are about jobs in queues."""

    def states(self, ids: Collection[str]) -> dict[str, RetryState]:
        """What is known of these jobs; nothing of most."""
        keys = [key(_STATE, each) for each in dict.fromkeys(ids) if each]
        return {text(item, "job_id"): _state_of(item) for item in self.items(keys)} if keys else {}

    def save_state(self, id: str, state: RetryState) -> None:
        """Keep what is known of a job, in place of what was."""
        item = {
            **key(_STATE, id),
            "retry_count": number(state.retry_count),
            "attempt": number(state.attempt),
            "deaths": number(state.deaths),
            "error": attribute(state.error),
            "not_before": number(state.not_before),
            "expires_at": self._expiry(),
        }
        self.call("put_item", Item=item)

    def forget_states(self, ids: Collection[str]) -> None:
        """Forget jobs that are finished."""
        self.write(
            [{"DeleteRequest": {"Key": key(_STATE, each)}} for each in dict.fromkeys(ids) if each],
            lambda rest: f"{len(rest)} states of finished jobs were not deleted; they are after 15 days.",
        )

    def add_deaths(self, ids: Collection[str], worker: str = "") -> None:
        """Count for each of these jobs that the process that ran it has died.

        With the worker's name it may be repeated: a job is said to have died in it, and once only.
        """
        for id in dict.fromkeys(ids):
            update, values = "ADD #deaths :one", {":one": number(1)}
            if worker:
                update, values = "ADD #died :worker", {":worker": {"SS": [worker]}}
            self.call(
                "update_item",
                Key=key(_STATE, id),
                UpdateExpression=f"{update} SET #expires = :expires",
                ExpressionAttributeNames={
                    "#expires": "expires_at",
                    **({"#died": "died_in"} if worker else {"#deaths": "deaths"}),
                },
                ExpressionAttributeValues={**values, ":expires": self._expiry()},
            )

    def _expiry(self) -> dict[str, str]:
        return number(int(self.clock.now() + _KEPT_S))


def _state_of(item: Item) -> RetryState:
    return RetryState(
        retry_count=int(real(item, "retry_count")) if "retry_count" in item else -1,
        attempt=int(real(item, "attempt")),
        deaths=int(real(item, "deaths")) + len(item.get("died_in", {}).get("SS", ())),
        error=text(item, "error") or None,
        not_before=real(item, "not_before"),
    )
