"""Origin: where an app was loaded from, as a TARGET of the command line, so that another process can load it.

The command line sets it. For a worker inside another program, the app is looked up among the globals of the loaded
modules.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import Laneway


@dataclass(frozen=True, slots=True)
class Origin:
    """All that another process needs to load the same app."""

    #: `module:app` or `path/to/file.py:app`.
    target: str
    #: The broker's, in full: it may hold a password. None: as the app's own code says.
    url: str | None = field(default=None, repr=False)
    #: Where modules are looked for.
    path: list[str] = field(default_factory=list, repr=False)
    #: The modules that have declared tasks.
    modules: list[str] = field(default_factory=list)


def origin_of(app: Laneway) -> Origin | None:
    """Where this app can be loaded from as it is now; None if that cannot be told."""
    found = app.origin or _found(app)
    if found is None:
        return None
    modules = dict.fromkeys(getattr(task.target, "__module__", None) for task in app.registry)
    return replace(
        found,
        url=app.full_url,
        path=[str(Path(entry or ".").absolute()) for entry in sys.path],
        modules=[name for name in modules if name and name != "__main__"],
    )


def _found(app: Laneway) -> Origin | None:
    """The module that has the app as a global; one that can be imported comes before the program's main file."""
    main = sys.modules.get("__main__")
    others = [module for name, module in list(sys.modules.items()) if name != "__main__"]
    for module in others:
        if isinstance(module, ModuleType) and (name := _name_in(module, app)):
            return Origin(f"{module.__name__}:{name}")
    name = _name_in(main, app) if main is not None else None
    if name is None:
        return None
    spec: Any = getattr(main, "__spec__", None)
    if spec is not None:  # python -m
        return Origin(f"{spec.name}:{name}")
    file = getattr(main, "__file__", None)
    return Origin(f"{Path(file).resolve()}:{name}") if file and not file.startswith("<") else None  # <stdin>


def _name_in(module: ModuleType, app: Laneway) -> str | None:
    return next((name for name, value in list(vars(module).items()) if value is app and name.isidentifier()), None)
