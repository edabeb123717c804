"""Modules that are loaded when they are first used, in one typed way, and patterns that are compiled then.

A module that few commands need is declared twice, for type checkers as an import and for Python as a promise of one:

    if TYPE_CHECKING:
        from toolwire.toolbox.web import fetching
    else:
        fetching = lazy_module("toolwire.toolbox.web.fetching")

`tests/test_layers.py` reads the imports, checks that both name the same module, and allows no other import by name.
"""

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, AnyStr, cast


class _LazyModule(ModuleType):
    """Stands for a module, and loads it when something of it is used. What was used once is as near as if imported."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by what looks at modules, not by what uses one
            raise AttributeError(name)
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def lazy_module(name: str) -> Any:
    """The module of this name, loaded when it is first used. Using it raises what importing it would."""
    return _LazyModule(name)


def lazy_names(package: str, namespace: dict[str, Any], homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are loaded from their modules when they are first used."""

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(import_module(home), name)
        return value

    return load


class _LazyPattern:
    """Stands for a compiled pattern, and compiles it when something of it is used."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = pattern, flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile` for a pattern that few commands use: compiling those of all modules took as long as many a call.

    Its methods can be used, and it is no argument for functions of `re`.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))
