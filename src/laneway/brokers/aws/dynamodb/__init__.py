"""DynamoDB: the waiter table with delayed jobs, retry state, history, workers and locks; and its poller.

- `delayed_jobs`: the waiter table: put, claim, release, move, remove, pages
- `items`: encodes a delayed job as an item and decodes it
- `poller`: decides when to look; moves due items to SQS
- `forward`: claims an item, sends it, deletes it
- `tables`: finds the table of a queue
- `retry_store`: retry state in the table, or in memory if there is no table
- `retry_state`: rows with the retry state of jobs whose message stays
- `job_history`: rows that record how jobs ended (`records=on`)
- `workers`: rows of workers and queues, and locks
- `heartbeat`: writes this worker's heartbeat and counters; reads pauses
- `client`: DynamoDB values and the requests of one table
"""
