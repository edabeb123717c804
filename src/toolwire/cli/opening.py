"""From flags and settings to the parts of an agent: its grant, tools, store and model."""

import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolwire.cli.known_names import require_known_names
from toolwire.cli.own_record import STORE_FILE, require_own
from toolwire.cli.project_modules import importable
from toolwire.cli.record_place import require_record_apart
from toolwire.cli.terminal_input import confirmed, someone_is_there
from toolwire.cli.text import clean, distinct
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.errors import SettingsError, ToolwireError
from toolwire.models.providers import split_name
from toolwire.models.recording import RecordingModel, ReplayModel
from toolwire.models.registry import open_model
from toolwire.protocol.chat import ChatModel
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.protocol.tools import Grant, Tool
from toolwire.protocol.values import dataclass
from toolwire.record.contract import Store
from toolwire.record.memory import MemoryStore
from toolwire.record.projects import DEFAULT, ProjectStore, of_project
from toolwire.record.retention import Keep, Retention
from toolwire.record.sqlite import SqliteStore
from toolwire.record.upkeep import pruned_in_background
from toolwire.settings import (
    Layer,
    ModelChoice,
    Settings,
    Untrusted,
    load,
    project_file,
    state_folder,
    trust,
    user_folder,
)
from toolwire.settings.schema import RetentionSettings
from toolwire.toolbox.registry import (
    BUILT_IN,
    PERMISSIONS,
    STANDARD,
    ToolDependencies,
    make_tools,
    reads_skills,
    tool_names,
)
from toolwire.wire.format_tally import FormatTally

if TYPE_CHECKING:
    from toolwire.cli.skills import PlacedSkills

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}", re.ASCII | re.IGNORECASE)

AGENT = "cli"
"""The agent that answers at the terminal, as records and `[agents.NAME]` know it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command was started: its folder, its environment, the settings in force there, and its skills.

    Of the record only what belongs to the `project` is seen.
    """

    cwd: Path
    environ: Mapping[str, str]
    settings: Settings
    project: str = DEFAULT
    _skills: "list[PlacedSkills]" = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def skills(self) -> "PlacedSkills":
        """Its skills. What reads and runs them is loaded now: most places have none."""
        if not self._skills:
            placed: type[PlacedSkills] = import_module("toolwire.cli.skills").PlacedSkills
            self._skills.append(placed(self.settings, self.cwd, self.environ))
        return self._skills[0]

    @property
    def has_skills(self) -> bool:
        """Whether any skill could be there, or the settings speak of them."""
        chosen = self.settings.tools
        folder = self.cwd / chosen.skills_path if chosen.skills_path else user_folder() / "skills"
        return bool(os.path.lexists(folder) or chosen.versions or chosen.skills_path or reads_skills(chosen.groups))

    @property
    def home(self) -> Path:
        found = self.settings.home(self.cwd)
        return found.resolve() if self.names_home and Path(self.settings.store.home).is_absolute() else found

    @property
    def has_home(self) -> bool:
        """Whether anything lies where state is kept, be it a link that leads nowhere."""
        return os.path.lexists(self.home)

    @property
    def names_home(self) -> bool:
        """Whether the user has just said which folder keeps the record, under a name of its own.

        A relative path in the environment says nothing about this project: the same name may lie in any clone.
        """
        layer, chosen = self.settings.origin("store.home").layer, Path(self.settings.store.home)
        given = layer is Layer.FLAGS or (layer is Layer.ENVIRONMENT and chosen.is_absolute())
        return given and chosen.name != OWN_STATE

    @property
    def kept(self) -> bool:
        """Whether there is a store to read."""
        return self.settings.store.kind == "libsql" or (
            self.settings.store.kind == "sqlite" and (self.home / STORE_FILE).is_file()
        )


@dataclass(frozen=True, slots=True)
class Granted:
    """What the flags of a command say about the grant, beyond the settings."""

    allow: list[str] = field(default_factory=list)
    yes: bool = False
    resumes: bool = False


def here(flags: Mapping[str, Any] | None = None, *, project: str = DEFAULT) -> Place:
    """The place of this process. Raises SettingsError. A file that needs trust is shown to whoever is at a terminal."""
    cwd = Path.cwd()
    settings = None
    while settings is None:  # each file that needs trust asks for itself
        try:
            settings = load(cwd, os.environ, flags, user_folder(), state_folder())
        except Untrusted as asking:
            if not (someone_is_there() and _trusts(asking)):
                raise
            trust(asking.file, asking.digest, state_folder())
    for file in settings.ignored_files:
        typer.echo(_foreign(file), err=True)
    place = Place(cwd, os.environ, settings, project)
    if place.settings.origin("grant.roots").layer is Layer.FLAGS:
        for root in place.settings.grant(cwd).roots:
            _require_folder(Path(root))
    return place


def _foreign(file: Path) -> str:
    advice = f"if you know what it says, set TOOLWIRE_TRUST={shlex.quote(str(file.parent))}"
    return clean(f"{file} belongs to another user and was not read; {advice}")


def grant_of(place: Place, granted: Granted, toolbox: Toolbox | None = None) -> Grant:
    """The settings' grant with what the flags add to it. Raises SettingsError for a permission that no tool needs.

    Where no tools are given, they are made only for a permission that no built-in tool needs; whoever makes them later
    asks `require_needed` about the others.
    """
    grant = place.settings.granted_to(AGENT, place.settings.grant(place.cwd))
    if toolbox is not None or not PERMISSIONS.issuperset(granted.allow):
        require_needed(granted, grant, toolbox or toolbox_of(place))
    confirmed = frozenset({"*"}) if granted.yes else grant.confirmed
    whole = replace(
        grant, permissions=grant.permissions | set(granted.allow), confirmed=confirmed, platform=sys.platform
    )
    if place.settings.store.kind == "sqlite":
        require_record_apart(place.home, whole)
    return resuming_grant(place, whole) if granted.resumes else whole


def require_needed(granted: Granted, grant: Grant, toolbox: Toolbox) -> None:
    """Raises SettingsError for a permission that neither the grant has nor any tool needs."""
    known = grant.permissions.union(*(tool.needs for tool in toolbox)) if granted.allow else ()
    for name in granted.allow:
        _require_permission(name, known)


def resuming_grant(place: Place, grant: Grant) -> Grant:
    """A grant to judge turns on record by: where no roots are set, the whole project may have been their folder."""
    if place.settings.origin("grant.roots").layer is not Layer.BUILT_IN:
        return grant
    return replace(grant, roots=(*grant.roots, str(place.settings.folder or place.cwd)))


def toolbox_of(place: Place, given: ToolDependencies | None = None, *, only: str = "") -> Toolbox:
    """The built-in tools, those of the settings' modules and those of skills, less what the settings leave out.

    To be called and not only looked at, tools must be `given` what they hold: see `cli.equipment`. Where one tool is
    called and no other is looked at, `only` that built-in tool is made.
    """
    chosen, names = place.settings.tools, built_in_names(place)
    is_alone = only in names and only not in chosen.exclude and (not chosen.include or only in chosen.include)
    own = every = _with_own_tools(place, make_tools([only] if is_alone else names, given or workplace_of(place)))
    taken = (*names, *own.names)
    withheld: list[Tool] = []
    if place.has_skills:
        every = own.plus(*place.skills.tools(taken))
        withheld = [each.tool for each in place.skills.chosen(taken).withheld]
    known = {*taken, *every.names, *(tool.name for tool in withheld)}
    # A built-in tool of a group that is not chosen can be excluded: it is out already.
    for name in (*chosen.include, *(name for name in chosen.exclude if name not in BUILT_IN)):
        if name not in known:
            near = nearest(name, known)
            advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(known))}."
            raise SettingsError(f"tools.include and tools.exclude name tools; there is no {name!r}; {advice}")
    require_known_names(place.settings, (*every, *withheld), names)
    wanted = [name for name in every.names if name not in chosen.exclude and name in (chosen.include or every)]
    return Toolbox(*(_timed(tool, chosen.timeout_s) for tool in every.only(wanted)))


def built_in_names(place: Place) -> tuple[str, ...]:
    """The names of the built-in tools that the settings offer."""
    return tuple(dict.fromkeys([*STANDARD, *tool_names(place.settings.tools.groups)]))


def own_tools_of(place: Place) -> Toolbox:
    """The built-in tools and those of the settings' modules, to be looked at. No skill takes a name from them."""
    return _with_own_tools(place, make_tools(built_in_names(place), workplace_of(place)))


def _with_own_tools(place: Place, built_in: Iterable[Tool]) -> Toolbox:
    return Toolbox(*built_in, *_own_tools(place))


def workplace_of(place: Place, store: Store | None = None) -> ToolDependencies:
    """What the settings give to the tools of groups."""
    chosen = place.settings.tools
    return ToolDependencies(
        chosen.engine, store, home=place.home, keeps=place.settings.store.lasts,
        search=lambda: _search_of(place), models=chosen.models, scripts=chosen.browser_scripts,
        most_bytes=chosen.workspace_bytes, disk_share=chosen.disk_share,
        user_home=user_home(place.environ), path=place.environ.get("PATH", ""),
        toolchains=chosen.toolchains, readable=_readable_of(place),
    )  # fmt: skip


def user_home(environ: Mapping[str, str]) -> Path:
    """The home of whoever runs this."""
    return Path(environ.get("HOME") or Path.home())


def _readable_of(place: Place) -> tuple[str, ...]:
    """The folders that the settings lend to boxes. Raises SettingsError for one that is not there or holds too much."""
    home, found = user_home(place.environ), []
    for named in place.settings.tools.readable:
        folder = home / named[2:] if named.startswith("~/") else place.cwd / named
        origin = f"tools.readable ({place.settings.origin('tools.readable')})"
        if not folder.is_dir():
            raise SettingsError(f"{origin}: {named!r} is not a folder")
        if import_module("toolwire.execute.toolchains").is_too_wide(folder, home):
            raise SettingsError(f"{origin}: {named!r} holds all of your home or the system; name a folder in it")
        found.append(str(folder))
    return tuple(found)


def _search_of(place: Place) -> Any:
    """What websearch asks; None where nothing is set. Raises SettingsError."""
    chosen = place.settings.search
    if chosen.backend == "none":
        return None
    if chosen.backend == "local":
        if chosen.folder is None:
            raise SettingsError("search.backend = local searches the documents of search.folder; name that folder")
        return import_module("toolwire.toolbox.local_index").IndexedFolder(str(place.cwd / chosen.folder))
    key = place.environ.get(chosen.key_env, "") if chosen.key_env else ""
    try:
        return import_module("toolwire.toolbox.search").search_backend(chosen.backend, url=chosen.url or "", key=key)
    except SettingsError as wrong:
        raise SettingsError(f"{wrong}; search.url and search.key_env say them") from None


@asynccontextmanager
async def store_of(place: Place, *, only_reads: bool = False, prunes: bool = True) -> AsyncIterator[ProjectStore]:
    """The project's view of the store of the settings, closed at the end. What it no longer keeps goes meanwhile.

    State that another maker left is opened only to be read.
    """
    if not only_reads:
        await require_own_state(place)
    if not place.settings.store.lasts:
        yield of_project(MemoryStore(), place.project)
        return
    store = await _open_store(place)
    retention = Retention() if only_reads or not prunes else retention_of(place.settings.retention)
    try:
        async with pruned_in_background(partial(_open_store, place), place.home, retention):
            yield of_project(store, place.project)
    finally:
        await store.close_store()


async def _open_store(place: Place) -> SqliteStore:
    if place.settings.store.kind == "libsql":
        return await _far_store(place)
    return await SqliteStore.at(place.home, lease_s=place.settings.store.lease_s)


def retention_of(chosen: RetentionSettings) -> Retention:
    """What the settings say about how long the record is kept."""
    return Retention(
        turns=_keep(chosen.turns_days, chosen.turns_mb),
        audit=_keep(chosen.audit_days, chosen.audit_mb),
        bodies=_keep(chosen.bodies_days, chosen.bodies_mb),
        logs=_keep(chosen.logs_days, chosen.logs_mb),
    )


def _keep(days: float | None, megabytes: float | None) -> Keep:
    return Keep(days, None if megabytes is None else int(megabytes * 1_000_000))


async def require_own_state(place: Place) -> None:
    """Whatever the store is, tools keep pages and plans in the home. Raises SettingsError and StoreUnavailable."""
    makes = place.settings.store.kind == "sqlite"
    if makes or place.has_home:
        await require_own(place.home, place.environ, named=place.names_home, store=makes)


async def _far_store(place: Place) -> SqliteStore:
    chosen = place.settings.store
    if chosen.url is None:
        raise SettingsError("store.kind = libsql needs the address of the server: set store.url")
    token = place.environ.get(chosen.token_env, "") if chosen.token_env else ""
    opened: SqliteStore = await import_module("toolwire.record.libsql").LibsqlStore.on(
        chosen.url, place.home, token=token, lease_s=chosen.lease_s
    )
    return opened


@dataclass(frozen=True, slots=True)
class Asked:
    """What the flags of a command say about its model."""

    base_url: str | None = None
    record: str | None = None
    replay: str | None = None
    key_env: str | None = None


def model_of(place: Place, choice: ModelChoice, asked: Asked, tallies: Sequence[FormatTally] = ()) -> ChatModel:
    """The chosen model, or what was recorded of one. Raises SettingsError and ModelError.

    Its formats are what its profile says and, where that leaves them open, what the tallies say has worked.
    """
    if asked.replay:
        return ReplayModel(Path(asked.replay))
    url = asked.base_url or choice.url
    model = open_model(
        choice.model, base_url=url, key_variable=_key_variable(place, asked) or choice.api_key_env,
        environ=place.environ, wish=choice.tools, tallies=tallies,
    )  # fmt: skip
    return RecordingModel(model, Path(asked.record)) if asked.record else model


def _key_variable(place: Place, asked: Asked) -> str | None:
    """The variable that `--key-env` names. Raises SettingsError for one that is not set, and for a key in its place."""
    if asked.key_env is None:
        return None
    if not _VARIABLE.fullmatch(asked.key_env):
        raise SettingsError(
            "--key-env takes the name of an environment variable, such as MY_API_KEY, not the key itself"
        )
    if not place.environ.get(asked.key_env, "").strip():
        raise SettingsError(f"--key-env {asked.key_env}: this variable is not set, or empty")
    return asked.key_env


def choice_for(place: Place, model: str) -> ModelChoice:
    """How to reach a model by its name: as the settings choose it, or as a profile describes it, or plainly."""
    chosen = place.settings.chosen()
    if split_name(chosen.model) == split_name(model):
        return chosen
    for name, profile in place.settings.profiles.items():
        if split_name(f"{profile.provider}:{profile.model}") == split_name(model):
            return ModelChoice(
                model, name, profile.url, profile.api_key_env, profile.temperature, profile.max_tokens, profile.tools
            )
    return ModelChoice(model)


def _trusts(asking: Untrusted) -> bool:
    typer.echo(f"{clean(str(asking.file))} asks for what only you can allow:\n{distinct(asking.wants)}", err=True)
    return confirmed("Do you trust this file, until it changes?")


def _require_folder(root: Path) -> None:
    if root.is_dir():
        return
    if root.exists():
        raise SettingsError(f"--root {root}: this is no folder; file tools reach what is beneath a folder")
    beside = root.parent.iterdir() if root.parent.is_dir() else ()
    near = nearest(root.name, (each.name for each in beside if each.is_dir()))
    advice = f"; did you mean {' or '.join(near)}?" if near else ""
    raise SettingsError(f"--root {root}: there is no such folder{advice}")


def _require_permission(name: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if name not in names:
        near = nearest(name, names)
        advice = f"did you mean {' or '.join(near)}?" if near else f"tools need: {', '.join(names) or 'none at all'}"
        raise SettingsError(f"--allow {name[:80]}: no tool needs such a permission; {advice}")


def _timed(tool: Tool, timeout_s: float) -> Tool:
    """A tool that names no time itself (neither directly nor by its category) gets the time of the settings."""
    unnamed = not tool.category and tool.timeout_s == Tool.__dataclass_fields__["timeout_s"].default
    return replace(tool, timeout_s=min(timeout_s, tool.max_timeout_s)) if unnamed else tool


def _own_tools(place: Place) -> Iterable[Tool]:
    if not place.settings.tools.modules:
        return ()
    origin = f"tools.modules ({place.settings.origin('tools.modules')})"
    with _importable(place):
        return [tool for path in place.settings.tools.modules for tool in _tools_at(path, origin)]


def _importable(place: Place) -> AbstractContextManager[None]:
    """Modules of the project can be named without being installed; those of the user's own file lie beside it.

    A name from the user's file is never looked for in the project: code that came with it would run unasked. And only
    now, after everything that is installed: tools may write to the project, and what is imported later is not theirs.
    """
    origin = place.settings.origin("tools.modules")
    file = origin.file or project_file(place.cwd, environ=place.environ)
    is_users_own = origin.layer is Layer.USER_FILE
    return importable((user_folder(),) if is_users_own else (place.cwd, file.parent if file else place.cwd))


def _tools_at(path: str, origin: str) -> Iterable[Tool]:
    module, _, attribute = path.partition(":")
    try:
        found: Any = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
        several = found if isinstance(found, (list, tuple)) else (found,)
        return tuple(Toolbox.of(*several))
    except ToolwireError as wrong:
        raise SettingsError(f"{origin}: {path}: {wrong}") from None
    except (Exception, SystemExit) as wrong:  # importing runs somebody's code, so anything can come out of it
        raise SettingsError(f"{origin}: {path!r} cannot be imported: {type(wrong).__name__}: {wrong}") from wrong
