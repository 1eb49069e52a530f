"""The brokers: the stores that keep jobs. `laneway.broker` is their contract.

- `sqlite/`: one file, any number of processes on one machine; `memory:`, the same inside one process
- `redis/`: a Redis or Valkey server, or a Cluster
- `aws/`: SQS for queues, DynamoDB for delays and state, SNS for events
- `shared`: checks and conversions that all brokers use: due times, storable text, filters as text
- `page_cursor`: sort orders of listings and the text that says where the next page begins
"""
