"""The caches of our own functions, to be emptied where an earlier answer must not stand for a new one."""

import functools
import sys
from collections.abc import Iterator
from typing import Any

_CACHE = functools._lru_cache_wrapper


def clear_caches(package: str = "toolwire") -> None:
    """Empty every `functools` cache that a module of the package, or a class in it, holds."""
    for cache in caches_of(package):
        cache.cache_clear()


def caches_of(package: str = "toolwire") -> list[Any]:
    """The caches of what is imported by now."""
    return [
        cache
        for name, module in list(sys.modules.items())
        if name == package or name.startswith(f"{package}.")
        for cache in _caches(vars(module), name)
    ]


def _caches(names: dict[str, Any], module: str) -> Iterator[Any]:
    for value in list(names.values()):
        if isinstance(value, _CACHE):
            yield value
        elif isinstance(value, type) and value.__module__ == module:
            yield from _caches(dict(vars(value)), "")
