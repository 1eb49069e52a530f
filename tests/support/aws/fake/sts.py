"""The STS operation `GetCallerIdentity`, which needs no permission."""

from __future__ import annotations

from typing import Any

from tests.support.aws.endpoints import ACCOUNT


class STS:
    def get_caller_identity(self, params: dict[str, Any], host: str) -> dict[str, Any]:
        arn = f"arn:aws:iam::{ACCOUNT}:user/fake"
        return {"UserId": "AIDAFAKEFAKEFAKEFAKE0", "Account": ACCOUNT, "Arn": arn}
