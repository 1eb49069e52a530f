"""Tests of the account: a message about a subject is logged once."""

from __future__ import annotations

import logging

import pytest

from laneway.brokers.aws import account
from tests.support.aws.brokers import make_account
from tests.support.aws.endpoints import Place
from tests.support.aws.turn_bench import sentences


def test_a_message_is_logged_once_until_its_subject_is_over(fake: Place, caplog: pytest.LogCaptureFixture) -> None:
    made = make_account(fake)
    for text in ("q is missing", "q is still missing"):
        made.log_once("missing q", text)
    made.log_once("missing r", "100% of r is missing", level=logging.WARNING)
    made.log_again("missing q")
    made.log_once("missing q", "q is missing again")
    assert sentences(caplog, logging.WARNING) == ["q is missing", "100% of r is missing", "q is missing again"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING, logging.ERROR]


def test_the_subjects_that_are_remembered_are_limited(
    fake: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "_REMEMBER", 3)
    made = make_account(fake)
    for subject in "abcda":
        made.log_once(subject, subject)
    assert sentences(caplog) == ["a", "b", "c", "d", "a"]
    assert len(made._logged) <= 3
