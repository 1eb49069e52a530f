"""SNS: the topics that events are published to, and the subscriptions of the listeners' queues.

- `publish`: publishes events to SNS
- `topics`: names, ARNs and creation of topics
- `subscriptions`: reads, creates, updates and ends subscriptions
- `access_policy`: whether a topic may send to a queue, and the policy that allows it
"""
