"""Tools that run in workers: `[services.NAME]` says where their calls go, and what a worker of that name offers."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.assemble.project import ProjectFolder, secret_in
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.errors import SettingsError
from toolwire.execute.contract import Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.lazy import lazy_module
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.protocol.subjects import CHANNEL_MARK, PROJECT_MARK, ROOT, VERSION, BadSubject, check_token
from toolwire.protocol.tools import BusService, Tool
from toolwire.settings import Layer, ServiceSettings

if TYPE_CHECKING:
    from toolwire.execute import router, service
else:
    # Loaded where the settings name a service: most projects have none.
    router = lazy_module("toolwire.execute.router")
    service = lazy_module("toolwire.execute.service")

SOCKETS = "sockets"
"""The folder for sockets of workers in a state folder, at whose top only files and folders may lie."""

_MOST_LINKS = 40  # as the kernel has it


def router_of(project: ProjectFolder, over_bus: Executor | None, on_devices: Executor | None) -> Executor:
    """What runs the calls of a project: in this process, in workers at sockets, and, given that, elsewhere."""
    sockets = {name: one for name, one in project.settings.services.items() if one.via == "socket"}
    tokens = {safe_address(project, name, one): token_of(project, name, one) for name, one in sockets.items()}
    at_sockets = service.ServiceExecutor(tokens) if sockets else None
    return router.Router(InProcessExecutor(), service=at_sockets, edge=on_devices, bus=over_bus)


def require_name_for_bus(project: ProjectFolder) -> None:
    """Raise SettingsError for a project whose name no subject can hold."""
    try:
        check_token(project.name, "the name of a project that uses a bus")
    except BadSubject as wrong:
        raise SettingsError(f"--project: {wrong}") from None


def subject_of(name: str) -> str:
    """Where the calls for a service go over the bus. Raises SettingsError for a name that no subject can hold."""
    try:
        check_token(name, "the name of a service that is reached over the bus")
    except BadSubject as wrong:
        raise SettingsError(f"services.{name[:80]}: {wrong}") from None
    return f"{ROOT}.{VERSION}.{PROJECT_MARK}.{CHANNEL_MARK}.cmd.tool.{name}"


def runs_elsewhere(project: ProjectFolder, tool: str) -> bool:
    """Whether a tool may run in a worker: the settings name it, or calls of any tools go to workers behind the bus."""
    return any(tool in one.tools or one.via == "bus" for one in project.settings.services.values())


def with_services(project: ProjectFolder, own: Toolbox) -> Toolbox:
    """The tools of this process and those of workers, which replace the ones that the settings name.

    Raises SettingsError for a worker that cannot be asked, lacks a tool, or has one of a name that is taken.
    """
    found: dict[str, tuple[str, Tool]] = {}
    for name, one in project.settings.services.items():
        offered = _sent_tools(name, one, own) if one.via == "bus" else _tools_of(project, name, one)
        for tool in offered:
            other = found.get(tool.name, ("this process", None))[0] if tool.name in found else "this process"
            if tool.name in found or (tool.name in own.names and tool.name not in one.tools):
                raise SettingsError(
                    f"services.{name} has a tool {tool.name!r}, and so has {other}; "
                    f"name in services.{name}.tools those that are to run there"
                )
            found[tool.name] = (f"services.{name}", tool)
    kept = [tool for tool in own if tool.name not in found]
    return Toolbox(*kept, *(tool for _, tool in found.values()))


def _sent_tools(name: str, one: ServiceSettings, own: Toolbox) -> list[Tool]:
    """Tools of this process whose calls go to workers behind the bus. Their definitions are the same there."""
    if not one.tools:
        raise SettingsError(f"services.{name}.tools: name the tools whose calls go over the bus")
    require_tools(f"services.{name}.tools", one.tools, {tool.name: tool for tool in own})
    return [replace(tool, target=BusService(subject_of(name))) for tool in own.only(one.tools)]


def _tools_of(project: ProjectFolder, name: str, one: ServiceSettings) -> list[Tool]:
    address = safe_address(project, name, one)
    try:
        offered = {tool.name: tool for tool in service.tools_at(address, token_of(project, name, one))}
    except service.ServiceUnavailable as reason:
        raise SettingsError(f"services.{name}: {reason}; start it with: toolwire worker {name}") from None
    require_tools(f"services.{name}.tools", one.tools, offered)
    return [offered[each] for each in one.tools or offered]


def require_tools(key: str, names: tuple[str, ...], offered: Mapping[str, Tool]) -> None:
    """Raise SettingsError for the first name that is none of a worker's tools."""
    for name in names:
        if name not in offered:
            near = nearest(name, offered)
            advice = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(offered) or 'none'}"
            raise SettingsError(f"{key}: this worker has no tool {name[:80]!r}; {advice}")


def address_of(project: ProjectFolder, name: str, one: ServiceSettings) -> str:
    """Where a worker listens: a relative path starts in the state folder, which no command sees."""
    if not one.socket:
        raise SettingsError(f"services.{name}.socket is missing: where the worker listens, such as {name}.sock")
    return str(project.home / SOCKETS / one.socket)


def safe_address(project: ProjectFolder, name: str, one: ServiceSettings) -> str:
    """The same, where no tool could put a socket of its own in its place. Raises SettingsError.

    The process that listens there gets the token and the arguments of calls. The kernel does not tell a command from a
    worker: unless toolwire is root, both run as the same user.
    """
    address = address_of(project, name, one)
    entries = list(_entries(Path(address)))
    for root in _changed_by_tools(project):
        for entry in entries:
            if root in entry.parents and not entry.is_relative_to(root / OWN_STATE):
                raise SettingsError(
                    f"services.{name}.socket: {entry} could be replaced by tools that may change {root}; "
                    f"give a plain name such as {name}.sock, which lies in {project.home / SOCKETS}, "
                    "or a path outside of grant.roots"
                )
    return address


def _changed_by_tools(project: ProjectFolder) -> list[Path]:
    """The folders that tools of any turn here may change: where no roots are set, the whole project is one."""
    settings = project.settings
    if settings.remote() is not None:
        return []
    roots = [Path(root) for root in settings.grant(project.cwd).roots]
    if settings.origin("grant.roots").layer is Layer.BUILT_IN and settings.folder is not None:
        roots.append(settings.folder)
    return [root.resolve() for root in roots]


def _entries(path: Path) -> Iterator[Path]:
    """Every entry of a folder that is looked up on the way along a path, those that its links lead to as well."""
    here, left, links = Path("/"), list(path.parts[1:]), 0
    while left:
        if (part := left.pop(0)) == "..":
            here = here.parent
            continue
        entry = here / part
        yield entry
        if links < _MOST_LINKS and entry.is_symlink():
            links += 1
            target = entry.readlink()
            here = Path("/") if target.is_absolute() else here
            left = [*target.parts[target.is_absolute() :], *left]
        else:
            here = entry


def token_of(project: ProjectFolder, name: str, one: ServiceSettings) -> str:
    """The token of a service, empty where it wants none. Raises SettingsError for a variable that is not set."""
    return secret_in(project.environ, one.token_env, f"services.{name}.token_env") if one.token_env else ""
