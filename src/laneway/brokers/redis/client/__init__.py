"""Calls Redis: one server or a Cluster, with retries, blocking waits, TLS and error texts.

A URL without TLS is served by `socket_connection`. redis-py makes the connections with TLS and those of ready clients,
and is not loaded before. This file imports nothing, so that `settings` can use `tls` without loading more.

- `server`: RedisClient, the interface; Server, one server that retries short outages
- `cluster`: ClusterServer: finds the server of a key and follows moved slots
- `connections`: a bounded set of connections to one server
- `socket_connection`: SocketConnection: a connection by hiredis, without redis-py
- `redis_py`: the exceptions of redis-py, without loading it
- `wait`: BLPOP that any thread can interrupt
- `errors`: turns error replies and errors of connections into Laneway errors; StaleLayoutError
- `tls`: checks TLS files and explains TLS errors
- `tls_probe`: finds out whether a server speaks TLS
"""
