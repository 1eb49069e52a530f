"""Transfers keys from one shard to another, a batch at a time: whole, once, and through any crash.

Each step is a script in one shard. `reshard_take` takes keys out of their shard and puts them beside it, where only
a transfer looks. `reshard_put` stores them in their new shard; payloads of a key that has many are copied before,
piece by piece, and stay invisible until their key arrives. `reshard_drop` deletes the batch beside the old shard. If
this process dies anywhere, the next process that takes from that shard gets the same batch. If two processes put the
same batch, the second put stores nothing. Apart from `reshard`, because `layout` needs it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .client.errors import ensure_current
from .script import load

if TYPE_CHECKING:
    from .client.server import Call
    from .layout import Layouts

#: Keys in a batch.
BATCH = 1_000
#: A batch, or a piece of payloads, does not grow once it is so large.
BYTES = 1_000_000
#: Pieces of payloads on their way at a time.
PIECES = 20


def transfer_keys(
    layouts: Layouts,
    source: str,
    home: Callable[[str], str],
    limit: int = BATCH,
    *,
    only: Sequence[str] | None = None,
    leaving_only: bool = False,
    mends: bool = False,
) -> int:
    """Bring a batch of keys from the shard `source` to where each has its `home`. Returns how many those were."""
    how = {"limit": min(limit, BATCH), "bytes": BYTES, "only": only, "leaving_only": leaving_only}
    _, seq, token, batch, *found = ensure_current(_run(layouts, "reshard_take", source, **how))
    if not found:
        return 0
    taken = list(zip(found[::3], found[1::3], found[2::3], strict=True))
    homes = {key: home(key.decode()) for key, _, _ in taken}
    whence = {"source": ":".join(source[:-1].split(":")[-2:]), "batch": batch, "mends": mends}
    pieces = [(key, dead) for key, spilled, _ in taken for dead in (False, True) if spilled & (1 + dead)]
    _copy(layouts, source, homes, pieces, whence)
    args = layouts.args(seq=seq, token=token, **whence)
    arrivals: dict[str, list[bytes]] = {}
    for key, _, blob in taken:
        arrivals.setdefault(homes[key], []).extend((key, blob))
    _run_all(layouts, [(load("reshard_put"), [tag], [args, *blobs]) for tag, blobs in arrivals.items()])
    _run(layouts, "reshard_drop", source, batch=batch, keys_gone=[key.decode() for key in homes])
    return len(taken)


def _copy(
    layouts: Layouts, source: str, homes: dict[bytes, str], pieces: list[tuple[bytes, bool]], whence: dict[str, Any]
) -> None:
    """Copy payloads that are not in the records; they stay unseen where they come to until their key arrives."""
    todo = [(key, dead, 0) for key, dead in pieces]
    while todo:
        asked, todo = todo[:PIECES], todo[PIECES:]
        answers = layouts.server.run_all(
            [
                (
                    load("reshard_read"),
                    [source],
                    [layouts.args(key=key.decode(), dead=dead, start=start, bytes=BYTES // PIECES)],
                )
                for key, dead, start in asked
            ]
        )
        puts: list[Call] = []
        for (key, dead, _), (after, *read) in zip(asked, answers, strict=True):
            puts.append((load("reshard_copy"), [homes[key]], [layouts.args(dead=dead, **whence), key, *read]))
            if after:
                todo.append((key, dead, after))
        _run_all(layouts, puts)


def _run(layouts: Layouts, script: str, tag: str, **args: object) -> list[Any]:
    answer: list[Any] = layouts.server.run(load(script), [tag], [layouts.args(**args)])
    return answer


def _run_all(layouts: Layouts, calls: Sequence[Call]) -> None:
    for answer in layouts.server.run_all(calls):
        ensure_current(answer)
