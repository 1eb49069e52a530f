"""Counters, metrics and probes."""
