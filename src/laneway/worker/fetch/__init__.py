"""Takes turns with the broker: settles finished claims, claims due jobs, and keeps them ready for the runners.

- `fetcher`: `Fetcher`, one thread per queue; `TurnClient` repeats a turn until the broker answers
- `prefetch`: `Lane`: how far one queue fetches ahead, when its settlements go, when its claims go back
- `bus`: `Bus`: the permits, and which lane is next; `FetchAllowance`: fairness between lanes
- `shards`: schedulers, splitters, and which shards a turn asks for
- `waker`: the thread that waits for due jobs on behalf of all idle fetchers
"""
