"""Supervises worker processes."""
