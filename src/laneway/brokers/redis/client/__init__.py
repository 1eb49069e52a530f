"""Connections to Redis servers and Clusters."""
