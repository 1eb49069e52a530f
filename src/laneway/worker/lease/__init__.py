"""Keeps the lease of a worker."""
