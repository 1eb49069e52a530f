"""Runs jobs in processes of their own: isolated tasks, sync time limits, jobs that killed their process.

- `pool`: `ProcessPool` starts, reuses, replaces and ends isolated processes
- `execute`: `IsolatedExecutor` sends a run to an isolated process and turns its answer into settlements
- `main`: the isolated process itself
"""
