"""Administration of AWS: creates and checks the resources of an app, and prints the IAM policy that it needs.

- `resources`: the resources that an app needs, and how each queue and table should be
- `create`: creates missing resources, by command or in development
- `check`: checks queues, tables, topics, permissions and the clock
- `iam`: the smallest policy that works
"""
