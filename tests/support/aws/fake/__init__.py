"""SQS, DynamoDB, SNS and STS in memory that speak AWS's protocols over HTTP to unmodified boto3.

Strict where AWS is strict, quick where AWS is quick, and on a clock of the test's own if it hands one in.
"""
