"""SQS: queues, messages, turns, settlement, and dead letters.

This file imports nothing: `unsupported` uses `message` and `hop_delay` without loading boto3.

- `turn`: the turn, wait, renew and leave of one process
- `receive`: one receiver thread per SQS queue, and all receivers of a process
- `intake`: sorts received messages: hold, send on, hide, delete
- `inflight`: messages that this process holds, FIFO groups, and claims handed out
- `settlement_plan`: decides which messages a settlement sends, deletes and hides, before SQS deletes them itself
- `settle`: carries out the plans of a turn; sends outboxes, copies and dead letters
- `visibility`: deletes messages or changes their visibility, in batches of ten; extends held messages
- `queues`: finds the SQS queues of a Laneway queue and caches their attributes
- `message`: encodes a job as an SQS message and decodes it; unwraps SNS envelopes
- `attributes`: third-party and published message attributes; packs those beyond nine into ours
- `hop_delay`: the due time in the ticket of a message that SQS delays again every 15 minutes, without a table
- `send`: sends now, with a delay, to the table, by hops or to a topic; reports messages that were not stored
- `send_batch`: sends a batch; if SQS refuses it, resends the rest one by one
- `dead_letters`: the dead-letter queue as a morgue: list, find, revive, delete; empty it (`deadletter reload`, `purge`)
"""
