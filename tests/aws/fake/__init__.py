"""An SQS and a DynamoDB in memory that speak AWS's JSON protocol over HTTP to unmodified boto3.

Strict where AWS is strict, quick where AWS is quick, and on a clock of the test's own if it hands one in.
"""
