"""The SQLite broker: one file, any number of processes on one machine, nothing to install.

`memory:` is the same broker on a database in the memory of one process.

The statements are in `queries/`, the tables in `schema.sql`.

- `broker`: SQLiteBroker: each verb is one transaction; joins and leases are here; MemoryBroker is `memory:`
- `store`: Store: the database, the clock and the cached queues, which the tiers share
- `enqueue`: stores plain jobs; merges keyed and collecting jobs with the stored job of their key
- `turn`: settles finished claims, claims due jobs, gives claims back
- `inspect`: status, find, stats, lags, workers, and pages of jobs
- `operate`: cancel, reschedule, run now, bury, delete, revive, pause
- `subscriptions`: stores which queue gets which event
- `wait`: wakes an idle process when the database changes
- `reshard`: moves jobs to their new shards, a step at a time
- `repair`: checks the stored data and repairs it
- `queues`: the rows of the queues, which the store caches
- `queries/`: the SQL statements, one file per verb; `schema.sql` has the tables
- `database`: Database: connections, fork safety, schema version; Transaction runs the statements; MemoryDatabase
"""

from .broker import MemoryBroker, SQLiteBroker

__all__ = ["MemoryBroker", "SQLiteBroker"]
