"""Events by way of SNS."""
