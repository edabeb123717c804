"""Rows of `resource.tools` become tools that live behind a bus: a pure reading of what the rows say.

A file has `[[tools]]`, each a row: `project_id`, `tool_name`, `description`, `parameters`, `target_subject`,
`after_execution`, `options`, `version`. A `project_id` beside the tools holds for all rows that name none.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.define.canonical import canonical
from toolwire.define.functions import tool_name
from toolwire.define.schemas import compile_parameters, compile_schema, object_schema, plain_copy
from toolwire.define.service_arguments import has_marks, refuse_hidden, visible_schema
from toolwire.define.service_files import read_tables
from toolwire.define.tables import Table
from toolwire.define.versions import is_version, pinned_version, read_pin, version_key
from toolwire.errors import DefinitionError
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.registrations import ToolRegistration
from toolwire.protocol.subjects import PROJECT_MARK, BadSubject, TargetSubject, check_token
from toolwire.protocol.tools import BusService, Delivery, Effect, Tier, Tool

FILE_KEYS = ("project_id", "tools")
ROW_KEYS = (
    "project_id", "tool_name", "description", "parameters", "target_subject", "after_execution", "options", "version",
)  # fmt: skip
OPTION_KEYS = (
    "args", "envs", "timeout_seconds", "suspend_timeout_seconds", "max_timeout_seconds", "effect", "tier",
    "permissions", "confirm", "controls_turn", "untrusted", "output_schema", "ui_allowed",
)  # fmt: skip
LONGEST_TIMEOUT_S = 86_400
MOST_ROWS = 1_000
LARGEST_ROW = 256 * 1024
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PERMISSION = re.compile(r"[a-z][a-z0-9_]{0,63}")


class RegisteredTool(Struct, frozen=True):
    """One row: a tool of a project.

    `parameters` is the whole schema, with the arguments that a model does not see; `row` is what a store keeps.
    """

    project: str
    tool: Tool
    parameters: Mapping[str, Any]
    row: ToolRegistration
    ui_allowed: bool = False


class ToolRegistry(Struct, frozen=True):
    """All rows that are known. A tool may be there in several versions; of each a turn gets one."""

    rows: tuple[RegisteredTool, ...] = ()

    def plus(self, more: Iterable[RegisteredTool]) -> "ToolRegistry":
        """These and more. Raises `DefinitionError` where a version of a tool would stand for two things."""
        rows = (*self.rows, *more)
        _refuse_twins(rows)
        return ToolRegistry(rows)

    def tools(self, project: str, pins: Iterable[str] = ()) -> tuple[Tool, ...]:
        """The tools of a project, sorted by name, each in its newest version or the pinned one (`search@1.2`).

        Drafts such as 2.0-rc1 are chosen by a pin only. Raises `DefinitionError` for a pin that means no version.
        """
        versions: dict[str, dict[str, Tool]] = {}
        for row in self.rows:
            if row.project == project:
                versions.setdefault(row.tool.name, {})[row.tool.version] = row.tool
        pinned = dict(map(read_pin, pins))
        if unknown := sorted(pinned.keys() - versions.keys()):
            raise DefinitionError(f"{unknown[0]!r} is pinned, and project {project!r} has no such tool")
        chosen = [_chosen(name, known, pinned.get(name)) for name, known in sorted(versions.items())]
        return tuple(tool for tool in chosen if tool is not None)


def registry_from_file(content: bytes, file: str, *, project: str = "") -> ToolRegistry:
    """The tools that a YAML, TOML or JSON file registers. With `project` it may register for that one only.

    Raises `DefinitionError` that names the file and the key.
    """
    table = Table(file, read_tables(content, file)).only(FILE_KEYS)
    entries = table.tables("tools", most=MOST_ROWS)
    if not entries:
        table.wrong("tools", "is missing; list at least one tool")
    usual = table.text("project_id", project) if project or "project_id" in table.values else ""
    rows = tuple(_row(entry.only(ROW_KEYS), usual) for entry in entries)
    for row in rows:
        if project and row.project != project:
            raise DefinitionError(
                f"{file} registers {row.tool.name!r} for project {row.project!r}, not for {project!r}; "
                "choose that project, or leave project_id out"
            )
    return ToolRegistry().plus(rows)


def read_registration(row: ToolRegistration) -> RegisteredTool:
    """The tool of a row that a store kept. Raises `DefinitionError` for one that this version cannot read."""
    values = {**written_row(row), "project_id": row.project}
    return _row(Table(f"{row.name}@{row.version} of project {row.project}", values).only(ROW_KEYS), "")


def read_row(values: Mapping[str, Any], where: str, *, project: str) -> RegisteredTool:
    """One row of a project, as a request has it. Raises `DefinitionError`, which begins with `where`."""
    found = _row(Table(where, values).only(ROW_KEYS), project)
    if found.project != project:
        raise DefinitionError(f"{where}: project_id is {found.project!r}, not {project!r}; leave it out")
    return found


def written_row(row: ToolRegistration) -> dict[str, Any]:
    """A row in the words of `resource.tools`, without its project: what its digest is about."""
    return {
        "tool_name": row.name,
        "version": row.version,
        "description": row.description,
        "parameters": dict(row.parameters),
        "target_subject": row.target_subject,
        "after_execution": row.after_execution,
        "options": dict(row.options),
    }


def _row(entry: Table, usual_project: str) -> RegisteredTool:
    name = _name(entry)
    entry = Table(f"{entry.where} ({name})", entry.values)
    project = _project(entry, usual_project)
    options = entry.table("options").only(OPTION_KEYS)
    owner = f"{entry.where}.parameters"
    parameters = object_schema(entry.table("parameters").values, owner)
    target = _target(entry, options, project)
    _check_arguments(options, parameters, target)
    effect = Effect(options.choice("effect", Effect, Effect.UNSAFE))
    timeout_s = _timeout(options)
    hides = bool(target.fixed or target.environment)
    tool = Tool(
        name=name,
        description=entry.text("description", most=4_000).strip(),
        input_schema=visible_schema(parameters, target, owner),
        output_schema=_output_schema(options),
        tier=_tier(options, effect),
        needs=_permissions(options),
        effect=effect,
        requires_confirmation=options.flag("confirm", default=False),
        timeout_s=timeout_s,
        max_timeout_s=options.whole("max_timeout_seconds", max(timeout_s, 300), timeout_s, LONGEST_TIMEOUT_S),
        delivery=Delivery.USER if target.after_execution is AfterExecution.TERMINATE else Delivery.MODEL,
        untrusted=options.flag("untrusted", default=False),
        version=_version(entry),
        validator=refuse_hidden(target) if hides else None,
        target=target,
    )
    kept = _registration(entry, project, tool, target)
    return RegisteredTool(project, tool, parameters, kept, options.flag("ui_allowed", default=False))


def _registration(entry: Table, project: str, tool: Tool, target: BusService) -> ToolRegistration:
    parameters, options = (
        plain_copy(entry.table(key).values, f"{entry.where}.{key}") for key in ("parameters", "options")
    )
    said = (
        tool.name,
        tool.version,
        tool.description,
        parameters,
        target.subject,
        target.after_execution.value,
        options,
    )
    row = ToolRegistration(project, *said, digest="")
    content = canonical(written_row(row))
    if len(content) > LARGEST_ROW:
        raise DefinitionError(f"{entry.where} has {len(content):,} bytes; at most {LARGEST_ROW:,} are allowed")
    return ToolRegistration(project, *said, digest=hashlib.sha256(content).hexdigest())


def _name(entry: Table) -> str:
    name = entry.text("tool_name", most=128)
    try:
        return tool_name(name)
    except DefinitionError:
        entry.wrong("tool_name", f"is letters, digits, '_', '.' or '-', starting with a letter, not {name[:60]!r}")


def _project(entry: Table, usual: str) -> str:
    project = entry.text("project_id", usual or None)
    try:
        return check_token(project, "project_id")
    except BadSubject as wrong:
        raise DefinitionError(f"{entry.where}: {wrong}") from None


def _version(entry: Table) -> str:
    version = entry.text("version", "1")
    if not is_version(version):
        entry.wrong("version", f"is one to four numbers with dots, such as 1.2.0, not {version[:60]!r}")
    return version


def _target(entry: Table, options: Table, project: str) -> BusService:
    written = entry.text("target_subject", most=1_024)
    try:
        subject = TargetSubject.parse(written)
        subject.fill(project, written.split(".")[3] if "{channel_id}" not in written else "any")
    except BadSubject as wrong:
        raise DefinitionError(f"{entry.where}.target_subject: {wrong}") from None
    if not subject.subject.is_tool_command:
        entry.wrong("target_subject", f"must be a subject of a tool, cg.v1r4.{PROJECT_MARK}.….cmd.tool.<target>")
    arguments = options.table("args").only(("defaults", "fixed"))
    return BusService(
        written,
        AfterExecution(entry.choice("after_execution", AfterExecution, AfterExecution.SUSPEND)),
        options.flag("controls_turn", default=False),
        _plain(arguments, "defaults"),
        _plain(arguments, "fixed"),
        _environment(options),
    )


def _plain(table: Table, key: str) -> dict[str, Any]:
    inner = table.table(key)
    return plain_copy(inner.values, inner.where)


def _environment(options: Table) -> dict[str, str]:
    table = options.table("envs")
    names = {name: table.text(name, most=128) for name in table.values}
    for name, variable in names.items():
        if not _VARIABLE.fullmatch(variable):
            table.wrong(name, f"must be the name of an environment variable, not {variable[:60]!r}")
    return names


def _check_arguments(options: Table, parameters: dict[str, Any], target: BusService) -> None:
    """Each argument that is put in must exist, in one way only, and fit where its value is known."""
    properties = parameters["properties"]
    ways = {"args.defaults": target.defaults, "args.fixed": target.fixed, "envs": target.environment}
    seen: dict[str, str] = {}
    for way, given in ways.items():
        for name in given:
            if name not in properties:
                options.wrong(way, f"names {name[:60]!r}, which is not in parameters.properties")
            if name in seen:
                options.wrong(way, f"names {name!r}, which {seen[name]} names too; choose one")
            seen[name] = way
    fits = compile_parameters(parameters)
    for way in ("args.defaults", "args.fixed"):
        for name, value in ways[way].items():
            if name in fits and not has_marks(value) and not fits[name](value):
                options.wrong(way, f"gives {name!r} a value that does not fit its schema")
    for name in target.environment:
        if name in fits and not fits[name]("text"):
            _refuse_unless_text(options, name, properties[name])


def _refuse_unless_text(options: Table, name: str, schema: Any) -> None:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if kind is not None and "string" not in ([kind] if isinstance(kind, str) else kind):
        options.wrong("envs", f"gives {name!r} text from the environment, and its schema does not take text")


def _timeout(options: Table) -> int:
    usual = options.whole("suspend_timeout_seconds", 30, 1, LONGEST_TIMEOUT_S)
    return options.whole("timeout_seconds", usual, 1, LONGEST_TIMEOUT_S)


def _tier(options: Table, effect: Effect) -> Tier:
    """The tier that a row asks for. One that says nothing of a tool with effects asks for the highest."""
    usual = Tier.WALK if effect is Effect.PURE else Tier.RUN
    return Tier[options.choice("tier", [tier.name.lower() for tier in Tier], usual.name.lower()).upper()]


def _permissions(options: Table) -> frozenset[str]:
    words = options.words("permissions")
    for word in words:
        if not _PERMISSION.fullmatch(word):
            options.wrong("permissions", f"are words such as file_read, not {word[:60]!r}")
    return frozenset(words)


def _output_schema(options: Table) -> dict[str, Any] | None:
    if "output_schema" not in options.values:
        return None
    table = options.table("output_schema")
    schema = plain_copy(table.values, table.where)
    compile_schema(schema, table.where)
    return schema


def _refuse_twins(rows: tuple[RegisteredTool, ...]) -> None:
    seen = set()
    for row in rows:
        key = (row.project, row.tool.name, row.tool.version)
        if key in seen:
            raise DefinitionError(f"{key[1]!r} version {key[2]} is registered twice for project {key[0]!r}; change one")
        seen.add(key)


def _chosen(name: str, known: Mapping[str, Tool], pin: str | None) -> Tool | None:
    if pin is None:
        finished = [version for version in known if "-" not in version]
        return known[max(finished, key=version_key)] if finished else None
    version = pinned_version(pin, known)
    if version is None:
        there = ", ".join(sorted(known, key=version_key))
        raise DefinitionError(f"{name}@{pin} is not registered; there are {there}")
    return known[version]
