"""Administration of AWS: creates and checks the resources of an app, and prints the IAM policy that it needs.

- `needs`: what the tasks and the listener of each queue need
- `resources/`: each kind of resource: how to look at it, create it, find what is wrong with it, and allow its use
- `create`: creates missing resources, by command or in development
- `check`: the health tier: checks all resources and the clock
- `iam`: the smallest policy that works
"""
