"""Which source files a module imports, as far as its text says: what runs when it is imported. Nothing is run here."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path


def find_imported(names: Iterable[str], folders: Sequence[Path], most: int) -> list[Path]:
    """The files in the folders that importing these modules runs, one more than `most` at the most."""
    waiting = [file for name in names for file in _files(name.split("."), folders)]
    found: dict[Path, None] = {}
    while waiting and len(found) <= most:
        file = waiting.pop()
        if file not in found:
            found[file] = None
            waiting.extend(_imported(file, folders))
    return list(found)


def _imported(file: Path, folders: Sequence[Path]) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # it cannot be imported either
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from chain.from_iterable(_files(one.name.split("."), folders) for one in names)
            case ast.ImportFrom(module, names, level):
                above = [file.parents[level - 1]] if level and level <= len(file.parents) else folders
                parts = module.split(".") if module else []
                yield from chain.from_iterable(_files([*parts, one.name], above) for one in names)


def _files(parts: Sequence[str], folders: Iterable[Path]) -> Iterator[Path]:
    """The files of a module and of the packages around it, in every folder that has some."""
    for folder in folders:
        here = folder
        for part in parts:
            here = here / part
            yield from (file for file in (here / "__init__.py", here.with_name(f"{part}.py")) if file.is_file())
            if not here.is_dir():
                break
