"""Declaring isolated tasks and time limits, and finding the module or file from which an app can be loaded."""

from __future__ import annotations

import sys
from datetime import timedelta
from types import ModuleType

import pytest

from laneway import Batch, Laneway
from laneway.cli.target import load
from laneway.origin import Origin, origin_of


@pytest.mark.parametrize(
    ("options", "sync", "asynchronous"),
    [
        ({}, None, None),
        ({"time_limit": 5}, "process", None),
        ({"time_limit": timedelta(minutes=1)}, "process", None),
        ({"isolation": "process"}, "process", "process"),
        ({"isolation": "fresh", "time_limit": 5}, "fresh", "fresh"),
    ],
)
def test_a_time_limit_of_a_sync_task_implies_a_process(options, sync, asynchronous):
    app = Laneway("memory:")

    @app.task(**options)
    def one() -> None: ...

    @app.task(**options)
    async def other() -> None: ...

    @app.collect(**options)
    def gather(batch: Batch[int]) -> None: ...

    @app.collect(**options)
    async def gather_too(batch: Batch[int]) -> None: ...

    assert (one.isolation, other.isolation) == (sync, asynchronous)
    assert (gather.isolation, gather_too.isolation) == (sync, asynchronous)


def test_limits_are_seconds():
    app = Laneway("memory:")

    @app.task(time_limit=timedelta(minutes=1))
    def one() -> None: ...

    assert one.options.limit_s == 60.0


# -- where an app comes from ---------------------------------------------------------------------------


@pytest.fixture
def module(monkeypatch):
    made = ModuleType("shop_of_a_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_an_app_is_found_by_the_module_that_has_it(module):
    module.shop = Laneway("sqlite:///secret.db")
    found = origin_of(module.shop)
    assert (found.target, found.url) == ("shop_of_a_test:shop", "sqlite:///secret.db")
    assert "secret" not in repr(found)
    assert all(found.path)


def test_the_modules_that_declare_tasks_are_named(module):
    module.shop = Laneway("memory:")

    @module.shop.task
    def one() -> None: ...

    assert origin_of(module.shop).modules == [__name__]


@pytest.mark.parametrize(
    ("name", "spec", "target"),
    [("main.py", None, "main.py:app"), ("main.py", "shop.main", "shop.main:app"), (None, None, None)],
)
def test_an_app_of_the_main_file_is_found_by_that(monkeypatch, tmp_path, name, spec, target):
    main = ModuleType("__main__")
    main.app = Laneway("memory:")
    if name is not None:
        main.__file__ = str(tmp_path / name)
    main.__spec__ = None if spec is None else type("Spec", (), {"name": spec})
    monkeypatch.setitem(sys.modules, "__main__", main)
    found = origin_of(main.app)
    if target is None:
        assert found is None
    else:
        assert found.target == (target if spec else f"{tmp_path / target}")


def test_an_app_that_nothing_has_is_not_found():
    assert origin_of(Laneway("memory:")) is None


def test_a_target_says_where_its_app_is_from(tmp_path, monkeypatch):
    (tmp_path / "shop_in_a_file.py").write_text("from laneway import Laneway\nmine = Laneway('memory:')\n")
    monkeypatch.chdir(tmp_path)
    target = load("./shop_in_a_file.py")
    assert target.app.origin == Origin(f"{tmp_path / 'shop_in_a_file.py'}:mine")
    target.app.use("sqlite:///other.db")
    assert origin_of(target.app).url == "sqlite:///other.db"
    target.app.close()
