"""The places where jobs can be kept; `laneway.broker` is their contract."""
