"""`toolwire records`: records of a project, as its admin sees them, without a server."""

import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from msgspec.structs import replace

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.records import record_service
from toolwire.assemble.stores import store_of
from toolwire.breadcrumbs.bootstrap import MOST_FILES, BadFiles, LoadedRecord, load_records, read_entries
from toolwire.breadcrumbs.found import FoundRecord
from toolwire.breadcrumbs.new_records import LONGEST_CONTEXT, read_new_record
from toolwire.breadcrumbs.queries import read_query
from toolwire.breadcrumbs.record_json import record_object
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.service import RecordService
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.ids import find_record_id
from toolwire.cli.resolve.options import AsJson, Home, NoColor, Project
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.identity import system_user
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.json_output import encode_json
from toolwire.cli.terminal.screen import Screen
from toolwire.define.service_files import ENDINGS, LARGEST_FILE
from toolwire.errors import InvalidRecord, NotFound, SettingsError
from toolwire.protocol.breadcrumbs import Record
from toolwire.record.contract import Numbered
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Violation

T = TypeVar("T")
records = typer.Typer(**LOOK, cls=Group, help="Keep, change and find records that agents and people share.")

_MOST_BYTES = 2 * LONGEST_CONTEXT
RecordId = Annotated[str, typer.Argument(metavar="ID", help="The id of the record, or enough of its end.")]
Schema = Annotated[str, typer.Option("--schema", metavar="NAME", help="Only records of this type, such as note.v1.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only records with this tag. Repeatable.")]
AnyTags = Annotated[
    list[str] | None, typer.Option("--any-tag", metavar="TAG", help="Only records with one of these tags. Repeatable.")
]
Author = Annotated[str, typer.Option("--author", metavar="NAME", help="Only records that this author created.")]
Since = Annotated[str | None, typer.Option("--since", metavar="DATE", help="Created then or later; with a time zone.")]
Until = Annotated[str | None, typer.Option("--until", metavar="DATE", help="Created before that.")]
Version = Annotated[int | None, typer.Option("--version", metavar="N", min=1, help="Only if that is its version.")]


@records.command("list", cls=CliCommand)
def list_records(
    schema: Schema = "",
    tag: Tags = None,
    any_tag: AnyTags = None,
    text: Annotated[str, typer.Option("--text", metavar="WORDS", help="Only records with all of these words.")] = "",
    author: Author = "",
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")] = 20,
    before: Annotated[
        int | None,
        typer.Option(
            "--before",
            metavar="CURSOR",
            help="The next page: records before this cursor, which each row of --json has.",
        ),
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also what toolwire keeps for its own work.")] = False,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """List records, the newest first."""
    place, screen = _opened(home, project, no_color=no_color)
    query = replace(read_query(_filters(schema, tag, any_tag, author, since, until)), text=text)
    none = list[Numbered[Record]]()

    async def read(service: RecordService, caller: Caller) -> list[Numbered[Record]]:
        return await service.listed(query, caller, limit=limit, before=before, internal=internal)

    rows = _with_records(place, read, none)
    if as_json:
        screen.json([{**record_object(row.value), "cursor": row.cursor} for row in rows])
        return Exit.DONE
    if not rows:
        screen.tell("No records fit.")
        return Exit.DONE
    shown = [_line(row.value) for row in rows]
    screen.table(("id", "version", "type", "changed", "by", "title"), shown)
    if len(rows) == limit:
        screen.tell(f"For older ones: --before {rows[-1].cursor}", "dim")
    return Exit.DONE


@records.command("show", cls=CliCommand)
def show(
    record_id: RecordId,
    view: Annotated[str, typer.Option("--view", metavar="raw|llm", help="All of it, or what models see.")] = "raw",
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show a record. With --view llm it is shown as its hints present it to models."""
    place, screen = _opened(home, project, no_color=no_color)
    if view not in ("raw", "llm"):
        raise SettingsError("--view is raw or llm")

    async def read(service: RecordService, caller: Caller) -> Mapping[str, Any]:
        kept = await service.read(await find_record_id(service, caller, record_id), caller)
        return record_object(kept) if view == "raw" else await service.llm_view(kept, caller)

    _show(screen, _with_records(place, read, _missing(record_id)), as_json=as_json)
    return Exit.DONE


@records.command("create", cls=CliCommand)
def create(
    schema_name: Annotated[str, typer.Argument(metavar="TYPE", help="The type of the record, such as note.v1.")],
    context: Annotated[
        str, typer.Argument(metavar="CONTEXT", help="Its context: a JSON object, @FILE, or - for standard input.")
    ] = "{}",
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="One line for people.")] = "",
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag. Repeatable.")] = None,
    hints: Annotated[str | None, typer.Option("--hints", metavar="JSON", help="llm_hints: how models see it.")] = None,
    visibility: Annotated[
        str, typer.Option("--visibility", metavar="NAME", help="Who may read it: private, project or public.")
    ] = "project",
    sensitivity: Annotated[
        str, typer.Option("--sensitivity", metavar="NAME", help="What it holds: normal, pii or secret.")
    ] = "normal",
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="TIME", help="How long it lasts: 24h, a date, or a JSON object.")
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="TEXT", help="Idempotency key: repeated, it is one record.")
    ] = "",
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Create a record. Secrets and configurations (tool.config.v1) are encrypted before they are kept."""
    place, screen = _opened(home, project, no_color=no_color)
    _require_lasting(place)
    said: dict[str, Any] = {
        "schema_name": schema_name, "title": title, "tags": tag or [], "context": _object(context, "CONTEXT"),
        "visibility": visibility, "sensitivity": sensitivity,
        "llm_hints": None if hints is None else _object(hints, "--hints"),
        "ttl": _object(ttl, "--ttl") if ttl is not None and ttl.lstrip().startswith("{") else ttl,
    }  # fmt: skip
    new = read_new_record(said)
    kept = _with_records(place, lambda service, caller: service.create(new, caller, key=key))
    _tell_kept(screen, kept, "created", as_json=as_json)
    return Exit.DONE


@records.command("edit", cls=CliCommand)
def edit(
    record_id: RecordId,
    patch: Annotated[
        str, typer.Argument(metavar="PATCH", help="JSON merge patch (RFC 7386), @FILE, or -; null removes a field.")
    ],
    version: Annotated[
        int, typer.Option("--version", metavar="N", min=1, help="The version that you have read; `show` tells it.")
    ],
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Change a record by a merge patch. Nothing changes where another version is the current one."""
    place, screen = _opened(home, project, no_color=no_color)
    _require_lasting(place)
    changes = _object(patch, "PATCH")

    async def change(service: RecordService, caller: Caller) -> Record:
        return await service.patch(await find_record_id(service, caller, record_id), changes, version, caller)

    _tell_kept(screen, _with_records(place, change, _missing(record_id)), "changed", as_json=as_json)
    return Exit.DONE


@records.command("delete", cls=CliCommand)
def delete(
    record_id: RecordId,
    version: Version = None,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Delete a record with all its versions."""
    place, screen = _opened(home, project, no_color=no_color)
    _require_lasting(place)

    async def remove(service: RecordService, caller: Caller) -> Record:
        found = await find_record_id(service, caller, record_id)
        return await service.delete(found, caller, expected=version)

    _tell_kept(screen, _with_records(place, remove, _missing(record_id)), "deleted", as_json=as_json)
    return Exit.DONE


@records.command("history", cls=CliCommand)
def history(
    record_id: RecordId,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")] = 20,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """List the versions of a record, the newest first."""
    place, screen = _opened(home, project, no_color=no_color)

    async def read(service: RecordService, caller: Caller) -> list[Record]:
        return await service.history(await find_record_id(service, caller, record_id), caller, limit=limit)

    versions = _with_records(place, read, _missing(record_id))
    if as_json:
        screen.json([record_object(one) for one in versions])
        return Exit.DONE
    shown = [
        (str(one.version), _time(one.updated_at), one.updated_by, one.title, _json(one.context)) for one in versions
    ]
    screen.table(("version", "changed", "by", "title", "context"), shown)
    return Exit.DONE


@records.command("search", cls=CliCommand)
def search(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the records are about.")],
    nn: Annotated[int, typer.Option("--nn", metavar="N", min=1, max=50, help="How many of the nearest ones.")] = 5,
    schema: Schema = "",
    tag: Tags = None,
    any_tag: AnyTags = None,
    author: Author = "",
    since: Since = None,
    until: Until = None,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Find the records that fit best to what a text says."""
    place, screen = _opened(home, project, no_color=no_color)
    query = read_query(_filters(schema, tag, any_tag, author, since, until))
    none = list[FoundRecord]()
    found = _with_records(place, lambda service, caller: service.search(text, caller, nn=nn, query=query), none)
    if as_json:
        screen.json([{**record_object(one.record), "score": one.score, "method": one.method} for one in found])
        return Exit.DONE
    if not found:
        screen.tell("No records fit.")
        return Exit.DONE
    screen.table(
        ("id", "score", "by", "type", "title"),
        [(one.record.id, f"{one.score:.3f}", one.method, one.record.schema_name, one.record.title) for one in found],
    )
    return Exit.DONE


@records.command("bootstrap", cls=CliCommand)
def bootstrap(
    places: Annotated[
        list[str], typer.Argument(metavar="FOLDER", help="Folders or files: JSON, YAML or TOML with records.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    home: Home = None,
    project: Project = "default",
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Load records from files: types, agents, schedules, configurations. What is there already is updated.

    Nothing is loaded where a file cannot be read. A run can be repeated: what has not changed stays as it is.
    """
    place, screen = _opened(home, project, no_color=no_color)
    _require_lasting(place)
    try:
        entries = read_entries({file: read_bytes(file, LARGEST_FILE + 1) for file in _files_in(places)})
    except BadFiles as wrong:
        listed = "\n".join(f"- {fault}" for fault in wrong.faults)
        raise SettingsError(f"nothing was loaded:\n{listed}") from None
    loaded = _with_records(place, lambda service, caller: load_records(service, entries, caller, dry_run=dry_run))
    if as_json:
        screen.json([_loaded_object(one) for one in loaded])
    else:
        for one in loaded:
            about = one.error or f"{one.entry.new.schema_name} {one.entry.identity}"
            screen.tell(f"{one.outcome}: {about}", "red" if one.error else "green")
        count = "1 record" if len(loaded) == 1 else f"{len(loaded)} records"
        screen.tell(f"{count}{' (nothing was written)' if dry_run else ''}.", "dim")
    return Exit.FAILED if any(one.error for one in loaded) else Exit.DONE


def _files_in(places: list[str]) -> list[str]:
    """The files that are named, and those in folders that are named, by name. Raises SettingsError."""
    found: dict[str, None] = {}
    for named in places:
        path = Path(named)
        inside = sorted(str(one) for one in path.rglob("*") if one.suffix in ENDINGS and one.is_file())
        if path.is_dir() and not inside:
            raise SettingsError(f"{named} has no files that end in {', '.join(ENDINGS)}")
        found |= dict.fromkeys(inside if path.is_dir() else [named])
    if len(found) > MOST_FILES:
        raise SettingsError(f"there are {len(found)} files; at most {MOST_FILES} can be loaded at once")
    return list(found)


def _loaded_object(one: LoadedRecord) -> dict[str, Any]:
    return {
        "file": one.entry.file,
        "line": one.entry.line,
        "schema_name": one.entry.new.schema_name,
        "title": one.entry.new.title,
        "outcome": one.outcome,
        "id": None if one.record is None else one.record.id,
        "version": None if one.record is None else one.record.version,
        "error": one.error,
    }


def _opened(home: str | None, project: str, *, no_color: bool) -> tuple[ProjectFolder, Screen]:
    place = current_project({"store.home": home}, project=project)
    return place, Screen.of(place.settings.output.color, no_color=no_color)


def _with_records(
    place: ProjectFolder,
    use: Callable[[RecordService, Caller], Coroutine[Any, Any, T]],
    absent: T | NotFound | None = None,
) -> T:
    """What is done with the records. Where there is no store yet, nothing is made for what only reads."""
    if absent is not None and not place.store_exists:
        if isinstance(absent, NotFound):
            raise absent
        return absent

    async def run() -> T:
        async with _records(place) as service:
            return await use(service, Caller(system_user(), Role.ADMIN))

    return run_sync(run())


@asynccontextmanager
async def _records(place: ProjectFolder) -> AsyncIterator[RecordService]:
    async with store_of(place) as store:
        service = record_service(place, store)
        try:
            yield service
        finally:
            service.close()


def _require_lasting(place: ProjectFolder) -> None:
    if not place.settings.store.lasts:
        raise SettingsError("records in memory end with this command; set store.kind to one that lasts")


def _missing(record_id: str) -> NotFound:
    return NotFound(f"there is no record {record_id[:200]!r}; `toolwire records list` shows those that are there")


def _filters(
    schema: str, tag: list[str] | None, any_tag: list[str] | None, author: str, since: str | None, until: str | None
) -> dict[str, Any]:
    said: dict[str, Any] = {"schema_name": schema, "all_tags": tag or [], "any_tags": any_tag or []}
    return {**said, "created_by": author, "since": since, "until": until}


def _object(said: str, what: str) -> dict[str, Any]:
    """A JSON object as it is given: itself, the name of its file, or standard input."""
    data = (
        read_bytes(said.removeprefix("@"), _MOST_BYTES)
        if said == "-" or said.startswith("@")
        else said.encode(errors="surrogateescape")
    )
    found = read_object(data, _MOST_BYTES, what)
    if isinstance(found, Violation):
        raise InvalidRecord(found.message)
    return found


def _show(screen: Screen, shown: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        screen.json(shown)
        return
    screen.pairs({name: _value(name, value) for name, value in shown.items() if value not in (None, "", [], {})})


def _value(name: str, value: Any) -> str:
    if name.endswith("_at") and isinstance(value, (int, float)):
        return _time(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else encode_json(value, indent=True).decode().rstrip()


def _tell_kept(screen: Screen, kept: Record, what: str, *, as_json: bool) -> None:
    if as_json:
        screen.json(record_object(kept))
        return
    screen.say(kept.id)
    screen.tell(f"{kept.schema_name} {what}; version {kept.version}.", "green")


def _line(record: Record) -> tuple[str, ...]:
    return (
        record.id, str(record.version), record.schema_name, _time(record.updated_at), record.updated_by, record.title,
    )  # fmt: skip


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _json(value: Any) -> str:
    return encode_json(value).decode().rstrip()
