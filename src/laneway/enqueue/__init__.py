"""Enqueueing: from a call, an instance or a raw body to stored jobs.

- `build`: Enqueuer builds jobs from calls, instances and raw bodies
- `pipeline`: BrokerHolder opens the app's broker; EnqueuePipeline runs the middleware and stores jobs
- `options`: EnqueueOptions, the options given to `using`; Item; InstanceSender
"""
