"""Renews the worker's lease, reports held claims with it, and reclaims from workers whose lease has ended.

A supervisor does so for its children: `supervisor/leases`.

- `lease`: `LeaseKeeper` renews this worker's lease and reclaims from dead workers
- `holdings`: the unsettled claims that a renewal reports
"""
