"""Logs for machines: lines of other libraries have the same format, appear once, and nothing is printed raw."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.shop import CANARY, Shop

pytestmark = pytest.mark.acceptance

APP = """
import logging
import os
import sys
import warnings
from laneway import Context, Laneway

app = Laneway()
SETUP

def speak(context: Context) -> None:
    logging.getLogger("library").info("not said")
    logging.getLogger("library").warning("the %s is away\\nand stays there", "bank")
    logging.getLogger("library").error("so many: %d", "CANARY")
    context.logger.warning("not %s enough: %s", "CANARY")
    context.logger.info("well said")
    warnings.simplefilter("always")
    warnings.warn("do not do that")
    try:
        raise ValueError("at last")
    except ValueError:
        logging.getLogger("library").exception("seen")

@app.task(context=True)
def here(context: Context) -> None:
    speak(context)

@app.task(context=True, isolation="process")
def apart(context: Context) -> None:
    speak(context)

if "PUT" in os.environ:
    for task in (here, apart):
        task.enqueue()
"""
OWN_HANDLER = """
logger = logging.getLogger("library")
logger.addHandler(logging.StreamHandler())
logger.handlers[0].setFormatter(logging.Formatter("own %(message)r"))
"""


def said(shop: Shop, *args: str, setup: str = "") -> list[str]:
    shop.write("talks.py", APP.replace("SETUP", setup).replace("CANARY", CANARY))
    shop.ok("check", "talks", PUT="1")
    process = shop.start("worker", "talks", "--until-empty", "--concurrency", "1", *args)
    _, text = process.communicate(timeout=60)
    assert process.returncode == 0, text
    assert CANARY not in text
    return text.splitlines()


@pytest.mark.parametrize("processes", [1, 2])
def test_every_line_is_a_document_whoever_says_it(shop: Shop, processes: int) -> None:
    found = [json.loads(line) for line in said(shop, "--log-format", "json", "--processes", str(processes))]
    others = [each for each in found if "event" not in each]
    for logger, level, message in (
        ("library", "WARNING", r"the bank is away\nand stays there"),
        ("library", "ERROR", r"'so many: %d', logged at .*talks\.py:\d+, cannot be shown: TypeError: .*"),
        (
            "laneway",
            "WARNING",
            r"'\[\w+ \w+\] not %s enough: %s', logged at .*talks\.py:\d+, cannot be shown: TypeError: .*",
        ),
        ("laneway", "INFO", r"\[\w+ \w+\] well said"),
        ("py.warnings", "WARNING", r".*talks\.py:\d+: UserWarning: do not do that"),
        ("library", "ERROR", "seen"),
    ):
        like = [each for each in others if each["logger"] == logger and re.fullmatch(message, each["message"])]
        assert [each["level"] for each in like] == [level] * 2, (message, others)  # in each process once
    assert len(others) == 12
    assert len({each["pid"] for each in others if each["logger"] == "library"}) == 2
    assert all(each["traceback"].endswith("ValueError: at last") for each in others if each["message"] == "seen")
    assert all(("process" in each) == (processes > 1) for each in others)


@pytest.mark.parametrize("log_format", ["plain", "rich"])
def test_so_it_is_in_the_formats_for_people(shop: Shop, log_format: str) -> None:
    lines = said(shop, "--log-format", log_format)
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} [A-Z]+ |    ", line) for line in lines)
    assert sum("the bank is away" in line for line in lines) == 2
    assert sum("cannot be shown" in line for line in lines) == 4
    assert sum("UserWarning: do not do that" in line for line in lines) == 2


def test_what_the_program_shows_itself_is_not_shown_twice(shop: Shop) -> None:
    lines = said(shop, "--log-format", "json", setup=OWN_HANDLER + "logging.raiseExceptions = False\n")
    own = [line for line in lines if not line.startswith("{")]
    assert sum(line == r"own 'the bank is away\nand stays there'" for line in own) == 2
    assert not any("the bank is away" in line for line in lines if line.startswith("{"))


def test_logging_that_the_program_has_set_up_is_left_alone(shop: Shop) -> None:
    setup = "logging.basicConfig(format='own %(name)s %(message)r')\nlogging.raiseExceptions = False\n"
    lines = said(shop, "--log-format", "json", setup=setup)
    assert not any(line.startswith("{") for line in lines)
    assert sum(line.startswith("own library 'the bank is away") for line in lines) == 2
    assert sum("UserWarning: do not do that" in line for line in lines) == 2
