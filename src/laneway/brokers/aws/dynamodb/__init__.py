"""DynamoDB: the waiter table with delayed jobs, retry state, history, workers and locks; and its poller.

- `delayed_jobs`: delayed jobs: put, claim, release, move, remove
- `items`: encodes a delayed job as a row and decodes it
- `poller`: decides when to look; moves due items to SQS
- `forward`: claims an item, sends it, deletes it
- `tables`: finds the table of a queue; a table has one object for each kind of row
- `retry_state`: the retry state of jobs whose message stays, in the table or, if there is none, in memory
- `job_history`: rows that record how jobs ended (`records=on`)
- `workers`: rows with the heartbeats of workers
- `queues`: rows with the counters and pauses of queues
- `locks`: rows that are locks
- `heartbeat`: writes this worker's heartbeat and counters; reads pauses
- `client`: the requests of one table, and the expressions in them
"""
