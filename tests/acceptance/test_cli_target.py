"""TARGET, and every way in which it can be wrong: a sentence on stderr, exit code 2, never a traceback."""

from __future__ import annotations

import pytest

from tests.support.shop import APP, Shop

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("target", ["shop", "shop:app", "shop.py", "./shop.py", "shop.py:app"])
def test_target_may_be_a_module_an_app_or_a_file(shop: Shop, target: str) -> None:
    assert "3 tasks: resize, send, flaky" in shop.ok("check", target)


def test_file_of_a_package_is_imported_as_part_of_it(shop: Shop) -> None:
    shop.write("pack/__init__.py", "")
    shop.write("pack/base.py", "from laneway import Laneway\napp = Laneway()\n")
    shop.write("pack/jobs.py", "from .base import app\n@app.task\ndef here() -> None: ...\n")
    assert "1 task: here" in shop.ok("check", "pack/jobs.py")
    assert "1 task: here" in shop.ok("check", "pack.jobs")


def test_file_may_be_named_as_something_that_is_imported_already(shop: Shop) -> None:
    shop.write(
        "elsewhere/queue.py", "import helper\nfrom laneway import Laneway\napp = Laneway()\napp.task(helper.f)\n"
    )
    shop.write("elsewhere/helper.py", "def f() -> None: ...\n")
    assert "1 task: f" in shop.ok("check", "elsewhere/queue.py")


@pytest.mark.parametrize("name", ["queue.py", "asyncio.py", "my.jobs.py", "my-jobs.py"])
def test_worker_runs_a_file_whatever_its_name(shop: Shop, name: str) -> None:
    shop.write(f"elsewhere/{name}", APP)
    done = shop.run("worker", f"elsewhere/{name}", "--until-empty")
    assert done.returncode == 0, done.stderr
    assert "started: 3 tasks" in done.stderr


def test_one_app_under_two_names_is_one_app(shop: Shop) -> None:
    shop.write("twice.py", "from shop import app\nalias = app\n")
    assert "3 tasks" in shop.ok("check", "twice")


def test_what_a_module_prints_stays_out_of_the_json(shop: Shop) -> None:
    shop.write("loud.py", "print('hello')\nfrom shop import app\n")
    assert shop.json("check", "loud")["well"] is True


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import nowhere_at_all", "broken needs the module 'nowhere_at_all', which is not installed (broken.py:1)."),
        (
            "import json\n\njson.loads('{')",
            "broken could not be imported: JSONDecodeError: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1) (broken.py:3).",
        ),
        ("x = 1\nif x\n", "broken could not be imported: SyntaxError: expected ':' (broken.py:2)."),
        ("raise KeyError", "broken could not be imported: KeyError (broken.py:1)."),
        ("raise ValueError('one\\ntwo')", "broken could not be imported: ValueError: one (broken.py:1)."),
        ("import sys\nsys.exit(0)", "broken ends the program while it is imported (broken.py:2)."),
        (
            "from laneway import Laneway\napp = Laneway(name='a b')",
            "broken could not be imported: ConfigError: name must be 1 to 80 letters, digits, '_' or '-', not 'a b' "
            "(broken.py:2).",
        ),
        ("x = 1", "There is no app in broken; make one with app = Laneway(…), or name the place that has it."),
        (
            "from laneway import Laneway\na, b = Laneway(), Laneway()",
            "There are 2 apps in broken: a, b; say which, as in broken:a or broken:b.",
        ),
    ],
)
def test_module_that_is_wrong_is_named_with_its_line(shop: Shop, text: str, sentence: str) -> None:
    shop.write("broken.py", text)
    for command in ("worker", "stats"):
        assert shop.wrong(command, "broken") == sentence


@pytest.mark.parametrize("command", ["dev", "check", "jobs", "delayed", "morgue", "workers"])
def test_every_command_says_what_is_wrong_with_its_target(shop: Shop, command: str) -> None:
    assert shop.wrong(command, "nowhere_at_all").startswith("There is no module 'nowhere_at_all', neither in ")


def test_file_that_is_wrong_is_named_with_its_line(shop: Shop) -> None:
    shop.write("sub/broken.py", "import nowhere_at_all")
    sentence = "sub/broken.py needs the module 'nowhere_at_all', which is not installed (sub/broken.py:1)."
    assert shop.wrong("worker", "sub/broken.py") == sentence


def test_target_that_does_not_exist(shop: Shop) -> None:
    assert shop.wrong("worker", "shopp").startswith("There is no module 'shopp', neither in ")
    assert shop.wrong("worker", "shop.jobs").startswith("There is no module 'shop.jobs', neither in ")
    assert shop.wrong("worker", "no/file.py") == "There is no file no/file.py."
    assert shop.wrong("worker", "shop:apple") == "There is no 'apple' in shop; say shop:app."
    assert shop.wrong("worker", "shop:resize").startswith("shop:resize is neither an app nor a worker but a Task")
    assert "is not a target" in shop.wrong("worker", "shop:")
    assert "is not the name of a module" in shop.wrong("worker", "my-shop")
    shop.write("shop.txt", "")
    assert shop.wrong("worker", "./shop.txt") == "shop.txt is not a Python file; its name must end in .py."


def test_app_without_tasks_is_an_error(shop: Shop) -> None:
    shop.write("empty.py", "from laneway import Laneway\napp = Laneway()\n")
    for command in ("worker", "dev"):
        assert shop.wrong(command, "empty").startswith(
            "empty:app has no tasks and no listeners; declare one with @app.task"
        )


def test_imports_of_the_app_are_loaded_and_named_when_they_fail(shop: Shop) -> None:
    shop.write("lazy.py", "from laneway import Laneway\napp = Laneway(imports=['parts'])\n")
    shop.write("parts.py", "from lazy import app\n@app.task\ndef part() -> None: ...\n")
    assert "1 task: part" in shop.ok("check", "lazy")
    shop.write("parts.py", "1 / 0")
    assert "ZeroDivisionError: division by zero (parts.py:1)" in shop.wrong("worker", "lazy")


def test_missing_target_is_a_usage_error(shop: Shop) -> None:
    done = shop.run("worker")
    assert done.returncode == 2
    assert "Missing argument 'TARGET'" in done.stderr
