"""Servers that speak AWS's protocols, and helpers for tests on them.

- `servers`: private servers on free ports of 127.0.0.1, which end with the tests
- `fake/`: the fake: SQS, SNS, DynamoDB and STS in one process, on a clock that a test may move
- `moto_server`: moto's server, fixed where it breaks promises of AWS that tests need
- `real_account`: the real AWS, for `make test-aws`
- `development_broker`: the AWS broker with missing queues made on first use, and its duties done; also with threads
- `simulated_aws`: the AWS broker on a fake without HTTP and threads, for simulations and the state machine
- `message_machine`: the state machine that holds the AWS broker to what it promises on SQS
- `broken_brokers`: AWS brokers with one mistake each, which the simulator and the machine must see
- `endpoints`: Place, any of these servers as the tests see it
- `fixtures`: the pytest fixtures for them
- `fault_proxy`: a proxy between boto3 and a server; it injects faults
- `protocols`: the proxy's knowledge of AWS's protocols
- `partial_batches`: makes some entries of a batch fail
- `iam_guard`: clients that may do only the actions which a given IAM policy allows
- `turn_bench`: the parts of the AWS broker that turns need, with hooks that can make an SQS call fail
- `brokers`: brokers for tests of the operator's view and actions
- `delay_table`: the table of delayed jobs and its poller, with their queues and items
- `workers`: apps and workers on SQS, for tests that run jobs
- `listener_app`: an app with one listener
"""
