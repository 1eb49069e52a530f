"""Fetches jobs ahead of the runners."""
