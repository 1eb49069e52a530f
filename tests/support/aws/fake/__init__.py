"""SQS, DynamoDB, SNS and STS in memory; unmodified boto3 talks to them over HTTP.

The fake is strict where AWS is strict. It uses the clock of the test if the test passes one.

- `server`: the HTTP server with all four services, in a thread of the test process
- `__main__`: the same server as its own process
- `sqs`: the operations of SQS
- `queues`: a queue: the life of a message from send to delete
- `delivery_order`: the order in which messages can be received, for standard and FIFO queues
- `messages`: a message: its checks, size and checksums
- `attributes`: the settings of a queue and their allowed values
- `policies`: the access policy of a queue: whether it lets SNS send
- `dynamodb`: the operations of DynamoDB
- `tables`: a table: its items and their order in the table and in each index
- `expressions`: evaluates conditions, updates and projections on an item
- `expression_parser`: parses DynamoDB expressions into trees
- `values`: DynamoDB values: checks, order and size
- `sns`: the operations of SNS, and delivery into the queues of `sqs`
- `topics`: topics and subscriptions: names, settings, and the message that a subscription delivers
- `publications`: a published message: its checks and size
- `filters`: filter policies of subscriptions
- `sts`: `GetCallerIdentity`
- `faults`: errors of AWS, and the rare behaviour of SQS that a test can turn on
- `query`: the Query protocol of SNS and STS: forms in, XML out
- `http`: HTTP/1.1 connections
"""
