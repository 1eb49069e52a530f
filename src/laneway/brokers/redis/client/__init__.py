"""Calls Redis: one server or a Cluster, with retries, blocking waits, TLS and error texts.

This file imports nothing, so that `settings` can use `tls` without loading redis-py.

- `server`: RedisClient, the interface; Server, one server that retries short outages
- `cluster`: ClusterServer: finds the server of a key and follows moved slots
- `connections`: a bounded set of connections to one server
- `wait`: BLPOP that any thread can interrupt
- `errors`: turns redis-py errors and script refusals into Laneway errors; StaleLayoutError
- `tls`: checks TLS files and explains TLS errors
- `tls_probe`: finds out whether a server speaks TLS
"""
