"""The supervisor: a process that starts worker processes, watches them and replaces them. It never runs a job.

- `supervisor`: `Supervisor` starts, watches, replaces and ends children
- `leases`: `ChildLeases` renews the children's leases and gives back the claims of dead children (`Broker.leave`)
"""
