"""Jobs: the values that the core and the brokers exchange, and the decisions about them.

Nothing here calls a broker.

- `data`: NewJob, Claim, JobView and the other values that brokers exchange with the core
- `settlement`: the rules of how a run ends: done, retry, bury, postpone, release; by retry count and deaths
- `merge`: the rules for adding a payload to a key that already has some
- `ticket`: encodes a call as JSON and decodes it
- `keys`: marks a parameter as the key; checks keys and scores
- `delay`: converts `delay` and `perform_at` to times
- `shards`: maps a key to its shard; the mapping must never change
"""
