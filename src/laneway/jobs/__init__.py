"""A job as data, and the rules that decide about it."""
