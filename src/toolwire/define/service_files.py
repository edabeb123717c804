"""The text of a registry file as plain tables: YAML, TOML or JSON, each read strictly."""

import importlib
import json
import tomllib
from collections.abc import Iterable
from typing import Any

from toolwire.errors import DefinitionError

LARGEST_FILE = 1024 * 1024
LONGEST_LINE = 20_000  # tomllib takes quadratic time for a dotted key
ENDINGS = (".yaml", ".yml", ".toml", ".json")


def read_tables(content: bytes, file: str) -> dict[str, Any]:
    """The tables of a file, whose name says its format. Raises `DefinitionError`, which names the file."""
    ending = next((each for each in ENDINGS if file.lower().endswith(each)), "")
    if not ending:
        raise DefinitionError(f"{file} must end in {', '.join(ENDINGS)}, which says how it is written")
    if len(content) > LARGEST_FILE:
        raise DefinitionError(f"{file} is larger than {LARGEST_FILE // 1024} KiB; split it")
    read = {".toml": _read_toml, ".json": _read_json}.get(ending, _read_yaml)
    try:
        found = read(content.decode("utf-8-sig"), file)
    except UnicodeDecodeError:
        raise DefinitionError(f"{file} is not UTF-8 text") from None
    except RecursionError:
        raise DefinitionError(f"{file} is nested too deeply") from None
    if not isinstance(found, dict):
        raise DefinitionError(f"{file} must be a table with tools, not {type(found).__name__}")
    return found


def _read_toml(text: str, file: str) -> Any:
    if any(len(line) > LONGEST_LINE for line in text.split("\n")):
        raise DefinitionError(f"{file} has a line of more than {LONGEST_LINE} characters; break it into several")
    try:
        return tomllib.loads(text)
    except ValueError as broken:
        raise DefinitionError(f"{file} is not valid TOML: {broken}") from None


def _read_json(text: str, file: str) -> Any:
    def pair_up(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if twice := _first_repeated(name for name, _ in pairs):
            raise ValueError(twice)
        return dict(pairs)

    def refuse(name: str) -> Any:
        raise ValueError(f"{name} is not a number in JSON")

    try:
        return json.loads(text, object_pairs_hook=pair_up, parse_constant=refuse)
    except ValueError as broken:
        raise DefinitionError(f"{file} is not valid JSON: {broken}") from None


def _first_repeated(names: Iterable[str]) -> str:
    """The sentence about a key that stands twice; "" where none does."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return f"the key {name[:60]!r} stands twice in one table"
        seen.add(name)
    return ""


def _read_yaml(text: str, file: str) -> Any:
    """YAML without aliases, which a few lines of can unfold into gigabytes, and without keys that stand twice."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ImportError:
        raise DefinitionError(
            f"{file}: reading YAML needs an extra: pip install 'toolwire[yaml]'; or write it as TOML or JSON"
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise yaml.YAMLError("aliases (*name) are not allowed; write the value out")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            if twice := _first_repeated(str(key.value) for key, _ in node.value):
                raise yaml.YAMLError(twice)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError) as broken:
        raise DefinitionError(f"{file} is not valid YAML: {str(broken)[:300]}") from None
