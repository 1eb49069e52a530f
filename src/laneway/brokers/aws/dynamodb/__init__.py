"""Delayed jobs and the state of workers in DynamoDB."""
