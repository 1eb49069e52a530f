"""Loads TARGET (`module`, `module:app` or `path/to/file.py`) and opens its app or its broker.

Loading imports the user's code, so most of the user's mistakes show here. Each is a `ConfigError` of one sentence
that names the place in the user's own code. `open_with_app` and `open_without_app` never create a database: a
mistyped path would look like an empty queue.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..app import Laneway
from ..broker import Broker, Finding
from ..errors import ConfigError
from ..origin import Origin
from ..urls import open_broker, resolve_url, without_secrets

if TYPE_CHECKING:
    from ..worker import Worker


@dataclass(frozen=True, slots=True)
class Target:
    """A loaded TARGET: an app, and the worker if TARGET named one."""

    #: The target as the user may type it: `shop:app`.
    text: str
    app: Laneway
    worker: Worker | type[Worker] | None = None


def load(text: str) -> Target:
    """Import the module or file that `text` names and find the app in it."""
    # Imported before the user's folder is on the path: a file there may have the name of a module that we need.
    import laneway.worker.worker  # noqa: F401

    place, name = _split(text)
    # Text that the user's module prints while it is imported must not end up in our JSON.
    with contextlib.redirect_stdout(sys.stderr):
        module = _load_file(Path(place)) if _is_file(place) else _load_module(place)
    if name is None:
        name, app = _only_app(module, place)
        target = Target(f"{place}:{name}", app)
    else:
        target = _named(module, place, name)
    here = str(Path(place).resolve()) if _is_file(place) else place
    target.app.origin = Origin(f"{here}:{name}")
    return target


def load_imports(app: Laneway) -> None:
    """Import the modules that the app names in `imports`."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            app.load()
        except (Exception, SystemExit) as error:
            raise _import_error("A module of the app's imports", error) from error


def _split(text: str) -> tuple[str, str | None]:
    place, colon, name = text.rpartition(":")
    if colon and place and all(part.isidentifier() for part in name.split(".")):
        return place, name
    if not text or text.startswith(":") or text.endswith(":"):
        raise ConfigError(f"{text!r} is not a target; give a module, module:app or path/to/file.py.")
    return text, None


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or os.sep in place


# -- importing -----------------------------------------------------------------------------------------


def _load_module(name: str) -> ModuleType:
    _put_on_path(Path.cwd())
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{name!r} is not the name of a module; give a module, module:app or path/to/file.py.")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"There is no module {error.name!r}, neither in {Path.cwd()} nor among what is installed."
            ) from error
        raise _import_error(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_error(name, error) from error


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.")
    if path.suffix != ".py":
        raise ConfigError(f"{path} is not a Python file; its name must end in .py.")
    root, parts = _module_name(path.resolve())
    _put_on_path(root)
    try:
        return importlib.import_module(".".join(parts)) if len(parts) > 1 else _load_by_path(parts[0], path)
    except (Exception, SystemExit) as error:
        raise _import_error(str(path), error) from error


def _load_by_path(name: str, path: Path) -> ModuleType:
    # Not by its name: a module of the same name may be imported already (queue.py).
    name = name.replace(".", "_")
    spec = importlib.util.spec_from_file_location(name if name not in sys.modules else f"{name}_target", path)
    assert spec is not None, "a .py file has a spec"
    assert spec.loader is not None, "and a loader"
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _module_name(path: Path) -> tuple[Path, list[str]]:
    """The folder to import from, and the parts of the module name. A file in a package is imported as part of it."""
    parts = [path.stem]
    folder = path.parent
    while path.stem.isidentifier() and (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, parts[:-1] if parts[-1] == "__init__" else parts


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _import_error(what: str, error: BaseException) -> ConfigError:
    place = _place(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return ConfigError(f"{what} needs the module {error.name!r}, which is not installed ({place}).")
    if isinstance(error, SystemExit):
        return ConfigError(f"{what} ends the program while it is imported ({place}).")
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    said = f"{type(error).__name__}: {message.strip().partition(chr(10))[0]}".removesuffix(": ")
    return ConfigError(f"{what} could not be imported: {said.rstrip('.')} ({place}).")


def _place(error: BaseException) -> str:
    """file:line of the innermost frame of the user's own code; for a syntax error, the place of the error."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_shown(error.filename)}:{error.lineno}"
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    frames = [frame for frame in frames if not frame[0].startswith("<frozen ")]
    paths = sysconfig.get_paths()
    others = (str(Path(__file__).parent.parent), paths["stdlib"], paths["purelib"], paths["platlib"])
    own = [frame for frame in frames if not frame[0].startswith(others)]
    file, line = (own or frames)[-1]
    return f"{_shown(file)}:{line}"


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


# -- finding -------------------------------------------------------------------------------------------


def _apps(module: ModuleType) -> dict[str, Laneway]:
    """The apps of a module by name. An app with two names is listed once."""
    apps: dict[str, Laneway] = {}
    for name, value in vars(module).items():
        if isinstance(value, Laneway) and not any(value is app for app in apps.values()):
            apps[name] = value
    return apps


def _only_app(module: ModuleType, place: str) -> tuple[str, Laneway]:
    apps = _apps(module)
    if not apps:
        raise ConfigError(f"There is no app in {place}; make one with app = Laneway(…), or name the place that has it.")
    if len(apps) > 1:
        raise ConfigError(
            f"There are {len(apps)} apps in {place}: {', '.join(apps)}; say which, as in {_first(place, apps)}."
        )
    return next(iter(apps.items()))


def _named(module: ModuleType, place: str, name: str) -> Target:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            apps = _apps(module)
            hint = f"say {_first(place, apps)}" if apps else "there is no app in it"
            raise ConfigError(f"There is no {name!r} in {place}; {hint}.")
        found = getattr(found, part)
    if isinstance(found, Laneway):
        return Target(f"{place}:{name}", found)

    from ..worker import Worker

    if isinstance(found, Worker):
        return Target(f"{place}:{name}", found.app, found)
    if isinstance(found, type) and issubclass(found, Worker):
        return Target(f"{place}:{name}", _only_app(module, place)[1], found)
    kind = found.__name__ if isinstance(found, type) else type(found).__name__
    raise ConfigError(f"{place}:{name} is neither an app nor a worker but a {kind}; name a Laneway(…).")


def _first(place: str, apps: dict[str, Laneway]) -> str:
    return " or ".join(f"{place}:{name}" for name in apps)


def open_target(text: str, url: str | None) -> Target:
    """Load a target. `url`, if given, overrides the URL of its app."""
    target = load(text)
    if url is not None:
        target.app.use(url)
    return target


@dataclass(frozen=True, slots=True)
class BrokerTarget:
    """An open broker, and the app that can decode its jobs if one was named."""

    broker: Broker
    app: Laneway | None


@contextmanager
def open_with_app(target: str | None, url: str | None) -> Iterator[BrokerTarget]:
    """Open the broker of the target's app, of the URL, or of LANEWAY_URL and the defaults of `resolve_url`."""
    app = None
    if target is not None:
        app = open_target(target, url).app
        broker = app.broker
    else:
        text, source = resolve_url(url)
        broker = open_broker(text, source)
        if not broker.capabilities.shared:
            raise ConfigError(
                f"The jobs of {without_secrets(text)} are inside the process that made them; give the URL of a broker "
                "that processes share."
            )
    try:
        if unmade := unmade_store(broker):
            raise ConfigError(unmade.text)
        if app is not None:
            find_queues(app, broker)
        yield BrokerTarget(broker, app)
    finally:
        broker.close()


@contextmanager
def open_without_app(target: str | None, url: str | None) -> Iterator[Broker]:
    """Open the broker alone, for commands that do not need the app."""
    with open_with_app(target, url) as place:
        yield place.broker


def find_queues(app: Laneway, broker: Broker) -> None:
    """Make a broker that cannot list its queues look for those of the app.

    Brokers that create queues can list them.
    """
    if broker.capabilities.makes_queues:
        return
    with contextlib.suppress(ConfigError):  # some tasks are better than none; `check` reports the error
        load_imports(app)
    for queue in app.queues():
        broker.inspect.exists(queue)


def unmade_store(broker: Broker) -> Finding | None:
    """A finding if the broker's store does not exist yet."""
    return broker.health.unmade() if broker.capabilities.has("health") else None


def known_queues(broker: Broker, wanted: str | None) -> list[str]:
    """Every queue of the broker, or only the wanted one; raises ConfigError if that does not exist."""
    if wanted is None:
        return list(broker.inspect.queues())
    if not broker.inspect.exists(wanted):
        raise ConfigError(unknown_queue(wanted, list(broker.inspect.queues())))
    return [wanted]


def unknown_queue(name: str, known: list[str]) -> str:
    """The sentence for a queue that does not exist."""
    return (
        f"There is no queue {name!r}; there is {', '.join(known)}."
        if known
        else f"There is no queue {name!r}, nor any other."
    )
