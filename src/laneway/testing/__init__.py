"""The test kit: for programs that use Laneway, and for authors of brokers.

- `faulty_broker`: FaultyBroker loses requests and answers on demand
- `conformance/`: BrokerConformance, the broker contract as tests
"""
