"""What supervisors and isolation know of processes."""
