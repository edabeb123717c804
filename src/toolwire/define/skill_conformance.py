"""What keeps a skill's tool from conforming: all that can be said about it without running it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema_rs import ValidationError
from msgspec.structs import replace

from toolwire.define.conformance import SkillFinding, report
from toolwire.define.faults import sentences
from toolwire.define.schemas import compile_schema
from toolwire.define.skills import CHANGING
from toolwire.protocol.skills import Program, SkillExample, SkillTool
from toolwire.protocol.tools import Effect, Tool

PERMISSIONS: Mapping[str, str] = {
    "file_read": "sees the workspace",
    "file_write": "can change the workspace",
    "network": "reaches the hosts of the grant",
}
"""What each permission gives a program in its box; others only keep a tool from callers who lack them."""

_STANDARD_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_FIELD = re.compile(r"\boutput\.([A-Za-z_][A-Za-z0-9_-]{0,63})")
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def report_skill_tool(entry: SkillTool) -> list[SkillFinding]:
    """Everything that can be found fault with, errors first. What a function may leave open, a skill must say."""
    found = [
        *(_strictly(each) for each in report(entry.tool) if each.where != "output_schema"),
        *standard_name(entry.tool),
        *_output(entry.tool),
        *_examples(entry),
        *_permissions(entry),
        *_tests(entry),
    ]
    return sorted(found, key=lambda finding: finding.level)


def standard_name(tool: Tool) -> Iterator[SkillFinding]:
    """The standard writes names in lowercase with hyphens."""
    name = tool.name.partition("@")[0]
    if not _STANDARD_NAME.fullmatch(name):
        better = _BOUNDARY.sub("-", name[:128]).lower().replace("_", "-").replace(".", "-").strip("-")
        yield SkillFinding("warning", "name", f"{name!r} is not lowercase with hyphens; write {better!r}")


def _strictly(finding: SkillFinding) -> SkillFinding:
    """A schema of a skill is complete or wrong: there is no function behind it to look at."""
    return replace(finding, level="error") if "_schema" in finding.where else finding


def _output(tool: Tool) -> Iterator[SkillFinding]:
    if tool.output_schema is None:
        yield SkillFinding("error", "output_schema", "is missing; say which fields the output has, and of what type")
    elif tool.output_schema.get("type") != "object":
        yield SkillFinding(
            "warning", "output_schema", "describes no object, so its fields cannot be named as output.field"
        )


def _examples(entry: SkillTool) -> Iterator[SkillFinding]:
    if not entry.examples:
        yield SkillFinding("warning", "examples", "are missing; show a call and say how to read its output")
    fields = _fields(entry.tool.output_schema)
    for place, example in enumerate(entry.examples):
        where = f"examples[{place}]"
        yield from _explanation(example, fields, where)
        if example.output is None:
            yield SkillFinding("warning", where, "has no output; show what comes back")
        elif entry.tool.output_schema is not None:
            yield from _faults(entry.tool.output_schema, example.output, f"{where}.output")


def _explanation(example: SkillExample, fields: frozenset[str], where: str) -> Iterator[SkillFinding]:
    named = _FIELD.findall(example.explanation)
    if not named:
        yield SkillFinding("warning", f"{where}.explanation", "names no field; say what output.field holds")
    for field in dict.fromkeys(named):
        if field not in fields:
            known = ", ".join(sorted(fields)) or "none"
            yield SkillFinding("error", f"{where}.explanation", f"names output.{field}; the output has: {known}")


def _fields(schema: Mapping[str, Any] | None) -> frozenset[str]:
    properties = (schema or {}).get("properties")
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()


def _faults(schema: Mapping[str, Any], value: Any, where: str) -> Iterator[SkillFinding]:
    try:
        compile_schema(schema, where).validate(value)
    except ValidationError as wrong:
        for sentence in sentences([wrong], schema):
            yield SkillFinding("error", where, sentence)


def _permissions(entry: SkillTool) -> Iterator[SkillFinding]:
    tool = entry.tool
    if tool.effect is Effect.PURE and (changing := tool.needs & CHANGING - {"network"}):
        asked = ", ".join(sorted(changing))
        yield SkillFinding(
            "error", "permissions", f"asks for {asked}, and says that it changes nothing (effect = pure)"
        )
    if {"file_read", "file_write"} <= tool.needs:
        yield SkillFinding("warning", "permissions", "file_write lets it read as well; file_read can be left out")
    for needless in sorted(tool.needs - PERMISSIONS.keys()):
        yield SkillFinding(
            "warning", "permissions", f"{needless} gives a program nothing; only callers who have it may call"
        )
    if entry.program.engine == "none":
        yield SkillFinding("warning", "sandboxing", "none asks for less than everyone gets, and is ignored")


def _tests(entry: SkillTool) -> Iterator[SkillFinding]:
    if not entry.tests:
        yield SkillFinding("warning", "tests", "are missing, so nothing shows that its output is as it promises")
    elif all(test.exit_code == 0 for test in entry.tests):
        yield SkillFinding(
            "warning", "errors", "no test shows how it fails; add one with the exit_code that you expect"
        )


def without(program: Program, permission: str) -> Program | None:
    """The program as it would be with a permission taken away; None where that makes no difference to its box."""
    match permission:
        case "file_write" if program.writes:
            return replace(program, writes=False)
        case "file_read" if program.reads and not program.writes:
            return replace(program, reads=False)
        case "network" if program.network:
            return replace(program, network=False)
    return None
