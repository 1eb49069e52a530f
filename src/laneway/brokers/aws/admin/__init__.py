"""Creates and checks queues, tables, topics and permissions."""
