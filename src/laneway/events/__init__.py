"""Events: names, filters, attributes, and publishing."""
