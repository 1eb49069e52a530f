"""Child processes and the connections to them; shared by `supervisor/` and `isolation/`.

- `child`: `Child`, a worker process as its supervisor sees it
- `isolated_child`: `IsolatedProcess`, an isolated process as its worker sees it
- `channel`: messages between supervisor and child, and between worker and isolated process
- `board`: the runs that have begun in a process, readable after its death
- `tree`: process groups, parent death, killing a process tree
"""
