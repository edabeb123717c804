"""The tools of a project: built in, of its modules and of skills, less what the settings leave out."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolwire.assemble.devices import device_tools, tools_of_known_devices
from toolwire.assemble.known_names import require_known_names
from toolwire.assemble.project import ProjectFolder
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import DeferredTool, Toolbox
from toolwire.errors import SettingsError, ToolwireError
from toolwire.lazy import lazy_module
from toolwire.protocol.devices import DeviceAccess
from toolwire.protocol.tools import Tool
from toolwire.record.contract import Store
from toolwire.settings import Layer, Settings, project_file, user_folder
from toolwire.settings.schema import GrantSettings
from toolwire.toolbox.registry import BUILT_IN, STANDARD, ToolDependencies, deferred_tools, tool_names

if TYPE_CHECKING:
    from toolwire.assemble import project_modules, registry, remote_workspace, services
    from toolwire.execute import toolchains
    from toolwire.toolbox.web import local_index, search
else:
    project_modules = lazy_module("toolwire.assemble.project_modules")
    registry = lazy_module("toolwire.assemble.registry")
    remote_workspace = lazy_module("toolwire.assemble.remote_workspace")
    services = lazy_module("toolwire.assemble.services")
    toolchains = lazy_module("toolwire.execute.toolchains")
    local_index = lazy_module("toolwire.toolbox.web.local_index")
    search = lazy_module("toolwire.toolbox.web.search")

_log = logging.getLogger(__name__)


def toolbox_of(
    project: ProjectFolder, given: ToolDependencies | None = None, *, only: str = "", is_worker: bool = False
) -> Toolbox:
    """The built-in tools, those of the settings' modules, of skills and of the registry, less what settings leave out.

    To be called and not only looked at, tools must be `given` what they hold: see `assemble.agents`. Where one tool is
    called and no other is looked at, `only` that built-in tool is made. A worker has no tools of other workers.
    """
    chosen, names = project.settings.tools, built_in_names(project)
    given = given or tool_dependencies(project)
    if project.settings.workspace.remote is not None:
        given = remote_workspace.on_remote(project.settings, given)
    is_alone = only in names and only not in chosen.exclude and (not chosen.include or only in chosen.include)
    workers = project.settings.services
    is_alone = is_alone and not (workers and services.runs_elsewhere(project, only))
    own = every = _with_own_tools(project, deferred_tools([only] if is_alone else names, given))
    own.get("websearch")  # made now, since its settings may be wrong; the others are made when they are used
    if workers and not is_worker:
        own = every = services.with_services(project, own)
    if not is_alone and not is_worker and project.has_bus:
        own = every = _with_registered(project, own)
    taken = (*names, *own.names)
    withheld: list[Tool] = []
    if project.has_skills:
        every = own.plus(*project.skills.tools(taken))
        withheld = [each.tool for each in project.skills.chosen(taken).withheld]
    if project.uses_devices and not is_alone and not is_worker:
        every = every.plus(*device_tools(project, (*taken, *every.names)))
    known = {*taken, *every.names, *(tool.name for tool in withheld)}
    # A built-in tool of a group that is not chosen can be excluded: it is out already.
    for name in (*chosen.include, *(name for name in chosen.exclude if name not in BUILT_IN)):
        if name not in known and not project.uses_devices:  # a device that has it may come later
            near = nearest(name, known)
            advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(known))}."
            raise SettingsError(f"tools.include and tools.exclude name tools; there is no {name!r}; {advice}")
    if _has_names(project.settings) and not (project.uses_devices and not any(project.known_devices)):
        elsewhere = tools_of_known_devices(project, (*taken, *every.names))
        require_known_names(project.settings, (*every, *withheld, *elsewhere), names)
    wanted = [name for name in every.names if name not in chosen.exclude and name in (chosen.include or every)]
    return every.only(wanted).map(partial(_with_timeout, chosen.timeout_s))


def _with_registered(project: ProjectFolder, own: Toolbox) -> Toolbox:
    """The tools with the registered ones. One whose name is taken is not offered: no row takes the place of a tool."""
    taken = {*BUILT_IN, *own.names}
    found = registry.offered_tools(project)
    for tool in found:
        if tool.name in taken:
            _log.warning("registered tool %s is not offered: another tool has its name", tool.name)
    return own.plus(*(tool for tool in found if tool.name not in taken))


def _has_names(settings: Settings) -> bool:
    """Whether the settings name agents, permissions or tools that may be misspelled."""
    return bool(settings.agents or settings.tools.secrets or settings.grants != GrantSettings())


def built_in_names(project: ProjectFolder) -> tuple[str, ...]:
    """The names of the built-in tools that the settings offer."""
    return tuple(dict.fromkeys([*STANDARD, *tool_names(project.settings.tools.groups)]))


def own_tools_of(project: ProjectFolder) -> Toolbox:
    """The built-in tools and those of the settings' modules, to be looked at. No skill takes a name from them."""
    return _with_own_tools(project, deferred_tools(built_in_names(project), tool_dependencies(project)))


def _with_own_tools(project: ProjectFolder, built_in: Iterable[DeferredTool]) -> Toolbox:
    return Toolbox(*built_in, *_own_tools(project))


def tool_dependencies(project: ProjectFolder, store: Store | None = None) -> ToolDependencies:
    """What the settings give to the tools of groups."""
    chosen = project.settings.tools
    return ToolDependencies(
        chosen.engine, store, home=project.home, keeps=project.settings.store.lasts,
        search=lambda: _search_of(project), models=chosen.models, scripts=chosen.browser_scripts,
        most_bytes=chosen.workspace_bytes, disk_share=chosen.disk_share,
        user_home=user_home(project.environ), path=project.environ.get("PATH", ""),
        toolchains=chosen.toolchains, readable=_readable_of(project), device=_device_access(project),
    )  # fmt: skip


def _device_access(project: ProjectFolder) -> DeviceAccess:
    chosen = project.settings.device
    return DeviceAccess(str(project.cwd / chosen.root), chosen.inputs, chosen.outputs, chosen.commands)


def user_home(environ: Mapping[str, str]) -> Path:
    """The home of the user who runs this."""
    return Path(environ.get("HOME") or Path.home())


def _readable_of(project: ProjectFolder) -> tuple[str, ...]:
    """The folders that the settings lend to boxes. Raises SettingsError for one that is not there or holds too much."""
    home, found = user_home(project.environ), []
    for named in project.settings.tools.readable:
        folder = home / named[2:] if named.startswith("~/") else project.cwd / named
        origin = f"tools.readable ({project.settings.origin('tools.readable')})"
        if not folder.is_dir():
            raise SettingsError(f"{origin}: {named!r} is not a folder")
        if toolchains.is_too_wide(folder, home):
            raise SettingsError(f"{origin}: {named!r} holds all of your home or the system; name a folder in it")
        found.append(str(folder))
    return tuple(found)


def _search_of(project: ProjectFolder) -> Any:
    """What websearch asks; None where nothing is set. Raises SettingsError."""
    chosen = project.settings.search
    if chosen.backend == "none":
        return None
    if chosen.backend == "local":
        if chosen.folder is None:
            raise SettingsError("search.backend = local searches the documents of search.folder; name that folder")
        return local_index.IndexedFolder(str(project.cwd / chosen.folder))
    key = project.environ.get(chosen.key_env, "") if chosen.key_env else ""
    try:
        return search.search_backend(chosen.backend, url=chosen.url or "", key=key)
    except SettingsError as wrong:
        raise SettingsError(f"{wrong}; search.url and search.key_env say them") from None


_DEFAULT_TIMEOUT_S = Tool("", "").timeout_s


def _with_timeout(timeout_s: float, tool: Tool) -> Tool:
    """A tool that names no time itself (neither directly nor by its category) gets the time of the settings."""
    unnamed = not tool.category and tool.timeout_s == _DEFAULT_TIMEOUT_S
    return replace(tool, timeout_s=min(timeout_s, tool.max_timeout_s)) if unnamed else tool


def _own_tools(project: ProjectFolder) -> Iterable[Tool]:
    if not project.settings.tools.modules:
        return ()
    origin = f"tools.modules ({project.settings.origin('tools.modules')})"
    with _importable(project):
        return [tool for path in project.settings.tools.modules for tool in _tools_at(path, origin)]


def _importable(project: ProjectFolder) -> AbstractContextManager[None]:
    """Modules of the project can be named without being installed; those of the user's own file lie beside it.

    A name from the user's file is never looked for in the project: code that came with it would run unasked. And only
    now, after everything that is installed: tools may write to the project, and what is imported later is not theirs.
    """
    origin = project.settings.origin("tools.modules")
    file = origin.file or project_file(project.cwd, environ=project.environ)
    is_users_own = origin.layer is Layer.USER_FILE
    return project_modules.importable(
        (user_folder(),) if is_users_own else (project.cwd, file.parent if file else project.cwd)
    )


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
    except (Exception, SystemExit) as wrong:  # importing runs code of others, so anything can come out of it
        raise SettingsError(f"{origin}: {path!r} cannot be imported: {type(wrong).__name__}: {wrong}") from wrong
