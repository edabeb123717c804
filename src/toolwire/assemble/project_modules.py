"""Importing modules of a project from their source alone.

Trust is for the source files that a user could read. Python would prefer a compiled module beside one, and take
what lies in `__pycache__` for it; tools may write to the project, so neither is ever loaded from there.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.machinery import FileFinder, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType


class _Source(SourceFileLoader):
    """Compiles what is written, each time."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(self.get_data(path), path, "exec", dont_inherit=True)


class _ProjectFinder:
    """Finds modules in folders of projects: by name only while told to, and inside their packages at any time."""

    def __init__(self) -> None:
        self._known: set[Path] = set()
        self._open: list[str] = []

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, *_: object) -> ModuleSpec | None:
        if path is None:
            return self._by_name(fullname) if self._open else None
        theirs = list(filter(self._is_theirs, path))
        if theirs and (found := _from_source(fullname, theirs)) is None:
            raise ModuleNotFoundError(f"there is no source of {fullname!r} in the project", name=fullname)
        return found if theirs else None

    def _by_name(self, name: str) -> ModuleSpec | None:
        if name in sys.builtin_module_names or name in sys.stdlib_module_names:
            return None
        installed = PathFinder.find_spec(name)
        if installed is None:
            return _from_source(name, self._open)
        places = [installed.origin] if installed.origin else list(installed.submodule_search_locations or ())
        if not any(map(self._is_theirs, places)):
            return None
        return _from_source(name, [*self._open, *(str(Path(place).parent) for place in places)])

    @contextmanager
    def open(self, folders: Sequence[Path]) -> Iterator[None]:
        self._known.update(folder.resolve() for folder in folders)
        self._open = [str(folder) for folder in folders]
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            self._open = []

    def _is_theirs(self, folder: str) -> bool:
        return any(Path(folder).resolve().is_relative_to(known) for known in self._known)


def _from_source(name: str, folders: Iterable[str]) -> ModuleSpec | None:
    for folder in folders:
        spec = FileFinder(folder, (_Source, [".py"])).find_spec(name)
        if spec is not None:
            return spec
    return None


_projects = _ProjectFinder()


def importable(folders: Iterable[Path]) -> AbstractContextManager[None]:
    """Modules in these folders can be imported, after everything that is installed."""
    return _projects.open(list(folders))
