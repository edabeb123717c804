"""`skill.toml` becomes tools: a pure reading of what the file says. Nothing is looked for on any disk here."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from toolwire.define.functions import tool_name
from toolwire.define.schemas import compile_schema, plain_copy
from toolwire.define.skill_parameters import check_passing, parameters_schema
from toolwire.define.skill_samples import examples_of, tests_of
from toolwire.define.tables import Table
from toolwire.define.versions import is_version
from toolwire.errors import DefinitionError
from toolwire.protocol.engines import DEFAULT_ENGINE, ENGINES
from toolwire.protocol.skills import MODULE_ENDINGS, ArgumentPassing, Program, Skill, SkillTool
from toolwire.protocol.tools import Effect, Tier, Tool

LARGEST_FILE = 256 * 1024
LONGEST_LINE = 2_000  # tomllib takes quadratic time for a dotted key
LONGEST_TIMEOUT_MS = 3_600_000
PLATFORMS = {"linux": "linux", "darwin": "darwin", "macos": "darwin", "win32": "win32", "windows": "win32"}
CHANGING = frozenset(("file_write", "shell", "git", "session", "network"))
"""Permissions with which a tool can change something outside of its box."""

SKILL_KEYS = ("name", "description", "version", "platforms", "skill", "tools")
TOOL_KEYS = (
    "name", "binary", "module", "description", "parameters", "output_schema", "input", "sandboxing", "timeout_ms",
    "max_timeout_ms", "permissions", "version", "platforms", "effect", "tier", "confirm", "examples", "tests",
    "metadata",
)  # fmt: skip

_COMPOSED = frozenset(("$ref", "allOf", "anyOf", "oneOf", "if"))
_SKILL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_PERMISSION = re.compile(r"[a-z][a-z0-9_]{0,63}")


def skill_from_toml(content: bytes, file: str, folder: str) -> Skill:
    """The skill that a skill.toml defines; without a name of its own it has that of its folder.

    Raises `DefinitionError` that names the file and the key.
    """
    table = Table(file, _parsed(content, file)).only(SKILL_KEYS)
    head = table.table("skill").only(SKILL_KEYS[:4]) if "skill" in table.values else table
    name = _skill_name(head, head.text("name", folder))
    version = _version(head, head.text("version", "1"))
    platforms = _platforms(head)
    entries = table.tables("tools")
    if not entries:
        table.wrong("tools", "is missing; write [[tools]] above each tool")
    tools = tuple(_tool(entry, name, version, platforms) for entry in entries)
    _refuse_twins(tools, file)
    return Skill(name, head.text("description", "", most=1_024), version, tools)


def _parsed(content: bytes, file: str) -> dict[str, Any]:
    if len(content) > LARGEST_FILE:
        raise DefinitionError(f"{file} is larger than {LARGEST_FILE // 1024} KiB")
    try:
        text = content.decode("utf-8-sig")
        if any(len(line) > LONGEST_LINE for line in text.split("\n")):
            raise DefinitionError(f"{file} has a line of more than {LONGEST_LINE} characters; break it into several")
        return tomllib.loads(text)
    except UnicodeDecodeError:
        raise DefinitionError(f"{file} is not UTF-8 text") from None
    except RecursionError:
        raise DefinitionError(f"{file} is nested too deeply") from None
    except ValueError as broken:
        raise DefinitionError(f"{file} is not valid TOML: {broken}") from None


def _tool(entry: Table, skill: str, version: str, platforms: frozenset[str]) -> SkillTool:
    entry.only(TOOL_KEYS)
    name = _tool_name(entry)
    entry = Table(f"{entry.where} ({name})", entry.values)
    needs = _permissions(entry)
    schema = parameters_schema(entry.table("parameters"))
    program = _program(entry, needs)
    check_passing(schema, program.passing, f"{entry.where}.parameters")
    timeout_ms = entry.whole("timeout_ms", 30_000, 1, LONGEST_TIMEOUT_MS)
    examples = examples_of(entry)
    tool = Tool(
        name=name,
        description=entry.text("description", most=4_000).strip(),
        input_schema=schema,
        output_schema=_output_schema(entry),
        tier=_tier(entry, needs),
        needs=needs,
        effect=_effect(entry, needs),
        requires_confirmation=entry.flag("confirm", default=False),
        category="exec",
        timeout_s=timeout_ms / 1000,
        max_timeout_s=entry.whole("max_timeout_ms", max(timeout_ms, 300_000), timeout_ms, LONGEST_TIMEOUT_MS) / 1000,
        sandbox=program.engine or DEFAULT_ENGINE,
        version=_own_version(entry, version),
        skill=skill,
        platforms=_platforms(entry) or platforms or _platforms_of(program),
        examples=tuple(example.arguments for example in examples),
    )
    return SkillTool(tool, program, examples, tests_of(entry))


def _tool_name(entry: Table) -> str:
    name = entry.text("name", most=128)
    try:
        return tool_name(name)
    except DefinitionError:
        entry.wrong("name", f"is letters, digits, '_', '.' or '-', starting with a letter, not {name[:60]!r}")


def _skill_name(head: Table, name: str) -> str:
    if not _SKILL_NAME.fullmatch(name):
        head.wrong("name", f"is 1 to 64 letters, digits, '_', '.' or '-', not {name[:60]!r}")
    return name


def _version(table: Table, version: str) -> str:
    if not is_version(version):
        table.wrong("version", f"is one to four numbers with dots, such as 1.2.0, not {version[:60]!r}")
    return version


def _own_version(entry: Table, version: str) -> str:
    metadata = entry.table("metadata").only(("version", "skill"))
    return _version(entry, entry.text("version", metadata.text("version", version)))


def _permissions(entry: Table) -> frozenset[str]:
    words = entry.words("permissions")
    for word in words:
        if not _PERMISSION.fullmatch(word):
            entry.wrong("permissions", f"are words such as file_read, not {word[:60]!r}")
    return frozenset(words)


def _program(entry: Table, needs: frozenset[str]) -> Program:
    written = entry.values.get("binary")
    is_module = "module" in entry.values
    if is_module:
        binaries = {"": _module(entry)}
    elif isinstance(written, Mapping):
        table = entry.table("binary").only(PLATFORMS)
        binaries = {PLATFORMS[name]: _inside(table, name) for name in written}
    else:
        binaries = {"": _inside(entry, "binary")}
    passing = ArgumentPassing(entry.choice("input", ArgumentPassing, ArgumentPassing.JSON))
    engine = entry.choice("sandboxing", ENGINES, DEFAULT_ENGINE) if "sandboxing" in entry.values else ""
    writes, network = "file_write" in needs, "network" in needs
    return Program(binaries, passing, writes or "file_read" in needs, writes, network, engine, is_module)


def _module(entry: Table) -> str:
    """The path of a module that exports `execute(input, context)`."""
    if "binary" in entry.values:
        entry.wrong("module", "takes the place of binary; name one of them")
    if entry.values.get("input", ArgumentPassing.JSON) != ArgumentPassing.JSON:
        entry.wrong("input", "is a value for execute(input, context) where module is given; leave it out")
    path = _inside(entry, "module")
    if PurePosixPath(path).suffix not in MODULE_ENDINGS:
        entry.wrong("module", f"ends with {', '.join(MODULE_ENDINGS)}, not {path[:60]!r}")
    return path


def _inside(table: Table, key: str) -> str:
    """The path of a program, if it can only be in the skill's own folder."""
    path = table.text(key, most=500)
    parts = PurePosixPath(path).parts
    if path.startswith(("/", "~")) or "\\" in path or ".." in parts or not parts or not path.isascii():
        table.wrong(key, f"must be a path inside the skill's folder, such as bin/resize, not {path[:60]!r}")
    return str(PurePosixPath(path))


def _output_schema(entry: Table) -> dict[str, Any] | None:
    if "output_schema" not in entry.values:
        return None
    table = entry.table("output_schema")
    schema = plain_copy(table.values, table.where)
    if schema.get("type") == "object" and "properties" in schema and not _COMPOSED & schema.keys():
        schema.setdefault("additionalProperties", False)  # an output has the fields it promises, and no others
    compile_schema(schema, table.where)
    return schema


def _platforms(table: Table) -> frozenset[str]:
    return frozenset(PLATFORMS[table.one_of("platforms", word, PLATFORMS)] for word in table.words("platforms"))


def _platforms_of(program: Program) -> frozenset[str]:
    """A tool runs where it has a program."""
    return frozenset() if "" in program.binaries else frozenset(program.binaries)


def _effect(entry: Table, needs: frozenset[str]) -> Effect:
    """What its author says, or what its box makes sure of: without a way out, running it again does no harm."""
    usual = Effect.UNSAFE if needs & CHANGING else Effect.IDEMPOTENT
    return Effect(entry.choice("effect", Effect, usual))


def _tier(entry: Table, needs: frozenset[str]) -> Tier:
    """The tier its author asks for, but no lower than what its permissions call for."""
    least = Tier.RUN if needs & CHANGING else Tier.WALK
    asked = entry.choice("tier", [tier.name.lower() for tier in Tier], least.name.lower())
    return max(least, Tier[asked.upper()])


def _refuse_twins(tools: tuple[SkillTool, ...], file: str) -> None:
    seen = set()
    for each in tools:
        key = (each.tool.name, each.tool.version)
        if key in seen:
            raise DefinitionError(
                f"{file}: two tools are named {key[0]!r} and have version {key[1]}; change one of them"
            )
        seen.add(key)
