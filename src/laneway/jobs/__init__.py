"""Jobs: the values that the core and the brokers exchange, and the decisions about them.

Nothing here calls a broker.

- `data`: NewJob, Claim, JobView and the other values that brokers exchange with the core
- `settlement`: decides how a run ends: done, retry, bury, postpone or release; and how often a process may die
- `merge`: decides what becomes of two jobs of one key when they meet
- `ticket`: encodes a call as JSON and decodes it
- `keys`: marks a parameter as the key; checks keys and scores
- `delay`: converts `delay` and `perform_at` to times
- `shards`: maps a key to its shard; never changes
"""
