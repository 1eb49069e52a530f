"""Batch: the payloads by key that a collecting task is handed, and `fail` for keys that failed."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Generic, TypeVar

from ..errors import LanewayError, NotInBatchError

T = TypeVar("T")


class Batch(Mapping[str, list[T]], Generic[T]):
    """Payloads by key, each key's with the smallest score first.

    Tests may build one: `Batch({"order-17": [{"v": 1}]})`.

    Args:
        payloads: The payloads of every key.
        scores: Their scores, key by key; without them 0, 1, 2 and so on.
    """

    __slots__ = ("_payloads", "_scores", "failures")

    def __init__(
        self, payloads: Mapping[str, Sequence[T]], scores: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        self._payloads: dict[str, list[T]] = {}
        self._scores: dict[str, list[float]] = {}
        #: What the handler said with `fail`.
        self.failures: dict[str, str | BaseException] = {}
        for key, values in payloads.items():
            if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
                raise LanewayError(
                    f"A batch has a list of payloads for every key, not {type(values).__name__}; write "
                    "Batch({key: [payload]})."
                )
            if scores is None:
                self._payloads[key], self._scores[key] = list(values), [float(n) for n in range(len(values))]
            else:
                self._payloads[key], self._scores[key] = _in_order(key, values, scores.get(key, ()))

    @classmethod
    def of(cls, payloads: dict[str, list[T]], scores: dict[str, list[float]]) -> Batch[T]:
        """One of payloads that are in order, and have a score each: what a broker hands out."""
        batch = cls.__new__(cls)
        batch._payloads, batch._scores, batch.failures = payloads, scores, {}
        return batch

    def scores(self, key: str) -> list[float]:
        """The scores of a key's payloads, in the order of the payloads."""
        try:
            return self._scores[key]
        except KeyError:
            raise NotInBatchError(f"The key {key!r} is not in this batch.") from None

    def fail(self, key: str, error: str | BaseException) -> None:
        """Have this key fail, and no other, if the handler returns normally; said twice, the last error counts."""
        if key not in self._payloads:
            raise NotInBatchError(f"The key {key!r} is not in this batch, so it cannot fail; give one of its keys.")
        if not isinstance(error, (str, BaseException)):
            raise LanewayError(f"An error must be text or an exception, not {type(error).__name__}.")
        self.failures[key] = error

    def __getitem__(self, key: str) -> list[T]:
        return self._payloads[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._payloads)

    def __len__(self) -> int:
        return len(self._payloads)

    # A mapping has these anyway, but takes ten times as long over them.

    def keys(self) -> KeysView[str]:
        return self._payloads.keys()

    def values(self) -> ValuesView[list[T]]:
        return self._payloads.values()

    def items(self) -> ItemsView[str, list[T]]:
        return self._payloads.items()

    def __repr__(self) -> str:
        # Without the payloads: they are arguments, and those never reach a log by themselves.
        size = sum(map(len, self._payloads.values()))
        return f"<Batch of {len(self)} keys with {size} payloads, {len(self.failures)} failed>"


def _in_order(key: str, payloads: Sequence[T], scores: Sequence[float]) -> tuple[list[T], list[float]]:
    if len(payloads) != len(scores):
        raise LanewayError(f"The key {key!r} has {len(payloads)} payloads and {len(scores)} scores; give one for each.")
    ordered = sorted(scores)
    if ordered == list(scores):
        return list(payloads), ordered
    return [payloads[n] for n in sorted(range(len(scores)), key=scores.__getitem__)], ordered
