"""Events: names, subscriptions, attributes, filters and publishing. Listeners are in `tasks/`.

- `event`: Subscription, EventNames, the key of an event's copy
- `publish`: Publisher makes one job per subscribed queue; EventSender sends to one queue
- `attributes`: checks and encodes the attributes that are published beside a value
- `filters`: decides whether a subscription wants an event
- `names`: checks the names of events, topics and their queues; reads LANEWAY_ENV and LANEWAY_DEVELOPMENT
"""
