"""The commands: the file `NAME.py` holds the command NAME and is imported when that command is used.

- `worker`: runs jobs until it is stopped
- `dev`: runs a worker for development and restarts it when the code changes
- `demo`: a small shop at work, live on the terminal
- `stats`: every queue in numbers
- `jobs`: lists, shows, runs, moves, cancels, buries and deletes jobs
- `delayed`: lists, runs, reschedules and cancels jobs that are not due yet
- `morgue`: lists, shows, revives and deletes dead jobs
- `workers`: lists live workers and those that died within the last hour
- `subscribe`: writes the subscriptions of an app's listeners
- `unsubscribe`: ends the subscription of a listener's queue
- `subscriptions`: lists which queues get which events
- `deadletter`: revives or deletes the dead letters of a listener
- `pause`: stops starting jobs from a queue; holds the code of `resume` too
- `resume`: starts a paused queue again
- `reshard`: changes a queue's shard count under load
- `check`: checks an app, its tasks and its broker
- `aws`: creates an app's resources on AWS and prints its IAM policy
"""
