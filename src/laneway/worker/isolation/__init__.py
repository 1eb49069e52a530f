"""Runs jobs in processes of their own."""
