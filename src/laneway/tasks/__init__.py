"""Tasks, collecting tasks and listeners: how they are declared, called, found and encoded.

- `task`: Task, a declared function or class
- `collecting`: Collecting, a task that gets all payloads of a key at once
- `batch`: Batch, the payloads by key that a collecting task is handed
- `listener`: Listener, declared code that runs for an event
- `registry`: tasks by name, collecting tasks and listeners by queue
- `declare`: `@app.task` and `@app.collect`, and the checks they make
- `declare_listener`: `@app.listener` and its checks
- `signature`: reads a callable's parameters; converts arguments to canonical JSON and back
"""
