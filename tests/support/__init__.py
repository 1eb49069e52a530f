"""What the tests share and Laneway does not ship: oracles, servers, fixtures and programs.

The oracles:

- `model`: the state of one key, as values and pure functions: enqueue and claim
- `model_settle`: the model, continued: how a run ends, and how a claim goes back
- `model_operate`: the model, continued: cancel, reschedule, revive, bury, delete, status
- `model_events`: the model of subscriptions and of the copies of an event
- `reference`: ReferenceBroker, a whole broker made of the model
- `second_broker/`: SecondBroker, a second implementation of the contract, which tests of the oracles break on purpose
- `machine`: BrokerMachine, the Hypothesis state machine that compares a broker with the model
- `machine_operate`: the steps of an operator
- `machine_events`: the steps of subscribers and publishers
- `choices`: the few queues, keys and payloads of the machine, and numbers read as choices among them
- `compare`: compares a broker's views, listings and stats with the reference
- `simulator`: workers, crashes, pauses and lost messages in one thread, by a seed
- `simulated_workers`: SimulatedWorker, Producer and Resharder
- `simulated_operators`: SimulatedOperator and SimulatedSupervisor
- `recorder`: RecordingBroker and Ledger: what a broker has done, in order
- `history`: the history of many runs, as lines of a file that survive a kill
- `checkers`: what must be true of a history; where a broker says that payloads are
- `scenarios`: scenarios that must hold on every broker, run with a real worker
- `node_checks`: checks for workers of several nodes, each with its own shards
- `findings`: the texts of findings, for tests that compare sentences
- `feature_table`: the table of features in the docs, made from the capabilities
- `journey`: Journey traces the files and functions that one job takes from enqueue to settled

Servers and networks:

- `servers`: starts Redis and Valkey servers, alone or as a cluster
- `certificates`: makes certificates, and starts Redis servers that present them
- `redis_proxy`: Proxy, a network that drops requests to Redis and its replies on demand
- `network_link`: Wire, a TCP connection that a test can cut
- `aws/`: servers that speak AWS's protocols, and helpers for tests on them

Programs and apps:

- `shop`: Shop, a folder with an app, where `python -m laneway` runs as a user would run it
- `in_process_shop`: Quick, a shop whose commands run inside this process
- `worker_processes`: Site, a database, a history and real `laneway worker` processes
- `programs/`: the program that those worker processes run
- `opened_app`: a process that opens an app, and what its first `enqueue` then still opens or imports
- `publish_app`: an app on a broker that records the jobs it receives
- `argument_types`: argument types and class tasks, one of every kind that users write
- `event_listener`: a worker that listens for orders and writes each to a file
- `event_delivery`: measures which events arrived at listener processes, and how often
- `memory_use`: measures the memory, descriptors and threads of a process that runs many jobs

Fixtures, for the conftest files:

- `worker_fixtures`: apps and helpers for tests that run a worker
- `sqlite_fixtures`: a new file, a broker on it, and scripts that run in other processes
- `redis_fixtures`: Redis clients by URL, and a manual clock
"""
