"""Shows a running worker from outside: counters, Prometheus metrics and HTTP probes.

- `counters`: `RunCounters` counts telemetry events; `CounterTotal` adds up several processes
- `prometheus`: the counters and the broker's queues as Prometheus metrics
- `http`: `StatusServer`, a small HTTP server for probes and scrapes
- `status`: the probes and metrics that a supervisor serves over HTTP
"""
