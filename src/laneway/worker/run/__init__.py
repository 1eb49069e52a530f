"""Runs jobs and decides what becomes of them."""
