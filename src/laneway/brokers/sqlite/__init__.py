"""The SQLite broker: one file, any number of processes on one machine, nothing to install.

The statements are in `queries/`, the tables in `schema.sql`.

- `broker`: SQLiteBroker: each verb is one transaction; joins, leases and pauses are here
- `enqueue`: stores plain jobs; merges keyed and collecting jobs with the stored job of their key
- `turn`: settles finished claims, claims due jobs, gives claims back
- `inspect`: status, find, stats, lags, workers, and pages of jobs
- `operate`: cancel, reschedule, run now, bury, delete, revive
- `subscriptions`: stores which queue gets which event
- `wait`: wakes an idle process when the database changes
- `reshard`: moves jobs to their new shards, a step at a time
- `repair`: checks the stored data and repairs it
- `queues`: the rows of the queues, which the broker caches
- `queries/`: the SQL statements, one file per verb; `schema.sql` has the tables
- `database`: Database: connections, transactions, fork safety, schema version, SQL files
"""

from .broker import SQLiteBroker

__all__ = ["SQLiteBroker"]
