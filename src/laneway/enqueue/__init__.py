"""From a call to stored jobs."""
