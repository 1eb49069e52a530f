"""Jobs as SQS messages."""
