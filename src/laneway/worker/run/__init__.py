"""From a claim to its settlement: decode, run inside the middleware, decide, report.

- `runner`: `RunPreparer` makes runs of claims; `Runner` executes them inside the middleware
- `run`: `Run`, `KeyedCalls`, `BatchClaims`, `RunOutbox`
- `decode`: decodes bodies to calls, event values and batches
- `decide`: what a failed run means for its task: `Retry`, `Bury`, `bury_on`, `retry_in`; then asks `jobs/settlement`
- `report`: reports runs to telemetry, error handlers and `retries_exhausted`; counts settlements
- `threads`: the runner threads
- `async_loop`: the event loop of async tasks, and their time limit
"""
