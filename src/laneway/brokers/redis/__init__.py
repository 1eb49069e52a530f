"""The Redis broker: one Redis or Valkey server, or a Cluster of them."""
