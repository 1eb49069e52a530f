"""The test kit for authors of brokers.

- `faulty_broker`: FaultyBroker loses requests and answers on demand
- `conformance/`: BrokerConformance, the broker contract as tests
"""
