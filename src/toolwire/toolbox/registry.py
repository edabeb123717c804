"""Every built-in tool by name and every group of them: the one list of both.

A tool is made when it is wanted, by the function that stands beside its name, from what its kind of tool touches. What
several tools share (files, a sandbox, jobs, other agents) is made once, when the first of them needs it.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from difflib import get_close_matches
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.toolbox import DeferredTool
from toolwire.errors import SettingsError
from toolwire.protocol.devices import DeviceAccess
from toolwire.protocol.engines import DEFAULT_ENGINE
from toolwire.protocol.files import FileOps
from toolwire.protocol.operations import Command, ExecOps, Listener, Ran
from toolwire.protocol.providers import tools_for_models
from toolwire.protocol.tools import Tool
from toolwire.toolbox import modules

if TYPE_CHECKING:
    from toolwire.breadcrumbs.service import RecordService
    from toolwire.breadcrumbs.specialists import Specialists
    from toolwire.define.toolbox import Toolbox
    from toolwire.toolbox.agents.delegation import SubAgents
    from toolwire.toolbox.browser.chromium import Chromium
    from toolwire.toolbox.data.paging import BodyKeeper, Fetch
    from toolwire.toolbox.device.host import HostTree
    from toolwire.toolbox.device.pins import Pins
    from toolwire.toolbox.shell.jobs import Jobs
    from toolwire.toolbox.user.canvas import Node
    from toolwire.toolbox.user.question import Ask
    from toolwire.toolbox.user.todos import Todos
    from toolwire.toolbox.web.search import SearchBackend

USUAL_HOME = Path(".toolwire")
SKILLS = "skills"
"""The group of the tool that reads skills. It is made where skills are looked for."""

PERMISSIONS = frozenset({"device", "file_read", "file_write", "git", "network", "records", "session", "shell"})
"""What built-in tools need."""


class ToolDependencies(Struct, frozen=True):
    """What tools are made from. What is not given is this machine's own, or left out.

    - `engine` is the weakest sandbox, `files` and `commands` act in place of this machine's disk and sandbox.
    - `store` keeps long results; `fetch` reads on in them, in place of the store.
    - `ask` asks the user. `search` gives what websearch asks. `sub_agents` gives the agents that can be set to work.
    - In `home` lie pages for the user and, if it `keeps`, plans for the next process; `todos` are kept elsewhere.
    - `models` are lines such as "openrouter vendor/model"; `scripts` let the browser run scripts of the model's own.
    - A workspace holds at most `most_bytes`; one command takes at most a `disk_share` of what is free.
    - Commands may read the `toolchains` in `user_home`, found there and by `path`, and further `readable` folders.
    - `device` says which pins, programs and kernel files tools about this machine may use.
    - `nodes` tells of the machines that run edge agents.
    - `records` gives the records of the project, `specialists` the agents that records wake, and `toolbox` the tools
      that are made with these.
    - What has to be closed in the end is put on `closing`.
    """

    engine: str = DEFAULT_ENGINE
    store: "BodyKeeper | None" = None
    ask: "Ask | None" = None
    home: Path = USUAL_HOME
    keeps: bool = False
    search: "Callable[[], SearchBackend | None] | None" = None
    models: tuple[str, ...] = ()
    sub_agents: "Callable[[], SubAgents] | None" = None
    scripts: bool = False
    most_bytes: int | None = None
    disk_share: float | None = None
    closing: AsyncExitStack | None = None
    user_home: Path | None = None
    path: str = ""
    toolchains: bool = True
    readable: tuple[str, ...] = ()
    files: FileOps | None = None
    commands: ExecOps | None = None
    todos: "Todos | None" = None
    fetch: "Fetch | None" = None
    device: DeviceAccess = DeviceAccess()
    nodes: "Callable[[], Awaitable[Sequence[Node]]] | None" = None
    records: "Callable[[], RecordService] | None" = None
    toolbox: "Callable[[], Toolbox] | None" = None
    specialists: "Callable[[], Specialists] | None" = None


class SharedDependencies:
    """What several tools share, each made when the first of them needs it."""

    def __init__(self, given: ToolDependencies) -> None:
        self.given = given

    @cached_property
    def files(self) -> FileOps:
        files = self.given.files or modules.local_files.LocalFiles()
        most = self.given.most_bytes
        return files if most is None else modules.quota.QuotaFiles(files, most)

    @cached_property
    def fetch(self) -> "Fetch | None":
        store = self.given.store
        return self.given.fetch or (modules.paging.from_store(store) if store else None)

    @cached_property
    def todos(self) -> "Todos":
        todos, home = modules.todos, self.given.home / "todos"
        return self.given.todos or (todos.FileTodos(home) if self.given.keeps else todos.MemoryTodos())

    @cached_property
    def sandbox(self) -> ExecOps:
        given = self.given
        return given.commands or sandbox_of(given.engine, given.most_bytes, given.disk_share)

    @cached_property
    def commands(self) -> ExecOps:
        """The sandbox, with the toolchains of the user's home to read, and the folders that the settings name."""
        given, home = self.given, self.given.user_home
        if given.commands or home is None or given.engine == "none" or not (given.toolchains or given.readable):
            return self.sandbox
        recognise = given.toolchains
        find = partial(modules.toolchains.find_toolchains, home, given.path, given.readable, recognise=recognise)
        return modules.toolchains.ToolchainExec(self.sandbox, home, find, environments=recognise)

    @cached_property
    def jobs(self) -> Mapping[str, Tool]:
        jobs: Jobs = modules.jobs.Jobs(self.commands)
        if self.given.closing is not None:
            self.given.closing.push_async_exit(jobs)
        return {tool.name: tool for tool in modules.job_tools.job_tools(jobs, engine=self.given.engine)}

    @cached_property
    def sessions(self) -> Mapping[str, Tool]:
        """The tools about other agents."""
        return {tool.name: tool for tool in modules.delegation_tools.teamwork(self.sub_agents)}

    @cached_property
    def sub_agents(self) -> "SubAgents":
        """The agents that can be set to work; without any there is none, over a store that knows of no turn."""
        return (
            self.given.sub_agents()
            if self.given.sub_agents
            else modules.delegation.SubAgents(modules.memory.MemoryStore(), ())
        )

    @cached_property
    def records(self) -> "RecordService | None":
        return self.given.records() if self.given.records else None

    @cached_property
    def orchestration(self) -> Mapping[str, Tool]:
        return {tool.name: tool for tool in modules.orchestration_tools.orchestration_tools(self.sub_agents)}

    @cached_property
    def search(self) -> "SearchBackend":
        backend = self.given.search() if self.given.search else None
        if self.given.closing is not None and (close := getattr(backend, "close", None)):
            self.given.closing.callback(close)
        return backend or modules.search.NoBackend()

    @cached_property
    def chromium(self) -> "Chromium":
        chromium = modules.chromium.Chromium()
        if self.given.closing is not None:
            self.given.closing.push_async_exit(chromium)
        return chromium

    @cached_property
    def host(self) -> "HostTree":
        return modules.host.HostTree(Path(self.given.device.root))

    @cached_property
    def pins(self) -> "Pins":
        return modules.pins.process_pins()


class SandboxWhenUsed:
    """A sandbox whose engines are loaded with its first command."""

    def __init__(self, make: Callable[[], ExecOps]) -> None:
        self._make = make

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        return await self._make().run(command, listener)


def sandbox_of(engine: str, most_bytes: int | None, disk_share: float | None) -> ExecOps:
    """What runs commands: in this engine at least, in a workspace that holds no more than so many bytes.

    One command takes at most this share of what is free on the disk.
    """
    box = modules.engines.local_sandbox(floor=engine, default=engine)
    ops: ExecOps = box
    if disk_share is not None:
        ops = modules.quota.ShareExec(ops, disk_share, engine=box.choice)
    return ops if most_bytes is None else modules.quota.QuotaExec(ops, most_bytes, engine=box.choice)


def named(tool: Tool, name: str) -> Tool:
    """The same tool under another name."""
    return replace(tool, name=name)


def _more(parts: SharedDependencies) -> Tool:
    assert parts.fetch is not None, "without a store, this tool is left out"
    return modules.paging.more_tool(parts.fetch)


def _commit(parts: SharedDependencies) -> Tool:
    return modules.commit_tool.git_commit_tool(parts.sandbox, stand_ins=modules.inspect_tools.stand_in_names())


def _job(name: str, parts: SharedDependencies) -> Tool:
    return parts.jobs[name]


def _session(name: str, parts: SharedDependencies) -> Tool:
    return parts.sessions[name]


def _orchestration(name: str, parts: SharedDependencies) -> Tool:
    return parts.orchestration[name]


def _workflow(parts: SharedDependencies) -> Tool:
    return modules.workflow_tool.workflow_tool(parts.sub_agents)


def _model(name: str, parts: SharedDependencies) -> Tool:
    return modules.model_tools.ask_model_tool(name, modules.model_tools.configured_by_lines(name, parts.given.models))


def _models_sync(parts: SharedDependencies) -> Tool:
    configured = modules.model_tools.configured_by_lines("openrouter", parts.given.models)
    return modules.models_sync.models_sync_tool(parts.records, configured)


def _safe_exec(parts: SharedDependencies) -> Tool:
    # Devices have little memory, and few of them run commands.
    commands = SandboxWhenUsed(lambda: parts.sandbox)
    return modules.safe_exec.safe_exec_tool(parts.given.device, commands, engine=parts.given.engine)


DEVICE_TOOLS = (
    "read_temperature", "read_cpu_usage", "read_memory", "read_disk", "system_info", "network_info", "list_processes",
    "gpio_list", "gpio_read", "gpio_write", "camera_capture", "ping", "read_file", "safe_exec",
)  # fmt: skip
JOB_TOOLS = ("job_start", "job_poll", "job_tail", "job_stop", "job_list")
SESSION_TOOLS = (
    "task", "agents_list", "sessions_list", "sessions_history", "session_status", "sessions_send", "sessions_spawn",
)  # fmt: skip

RECORD_TOOLS = (
    "breadcrumb-create", "breadcrumb-update", "breadcrumb-search", "breadcrumb-approve", "breadcrumb-context-merge",
    "openrouter_models_sync", "scheduler", "schedule", "assign",
)  # fmt: skip

ORCHESTRATION_TOOLS = (
    "delegate_async",
    "ask_expert",
    "launch_principal",
    "fork_join",
    "provision_agent",
    "call_result",
)

TOOLS: Mapping[str, Callable[[SharedDependencies], Tool]] = {
    "calculator": lambda _: modules.everyday.calculator_tool(),
    "echo": lambda _: modules.everyday.echo_tool(),
    "random": lambda _: modules.everyday.random_tool(),
    "timer": lambda _: modules.everyday.timer_tool(),
    "read": lambda parts: modules.reading.read_tool(parts.files),
    "list": lambda parts: modules.finding.list_tool(parts.files),
    "glob": lambda parts: modules.finding.glob_tool(parts.files),
    "grep": lambda parts: modules.searching.grep_tool(parts.files),
    "find": lambda parts: modules.finding.find_tool(parts.files),
    "stat": lambda parts: modules.finding.stat_tool(parts.files),
    "search_code": lambda parts: modules.searching.search_code_tool(parts.files),
    "image": lambda parts: modules.images.image_tool(parts.files),
    "write": lambda parts: modules.writing.write_tool(parts.files),
    "edit": lambda parts: modules.writing.edit_tool(parts.files),
    "apply_patch": lambda parts: modules.patching.apply_patch_tool(parts.files),
    "todowrite": lambda parts: modules.todos.todowrite_tool(parts.todos),
    "todoread": lambda parts: modules.todos.todoread_tool(parts.todos),
    "question": lambda parts: modules.question.question_tool(parts.given.ask),
    "more": _more,
    "read_file": lambda parts: named(modules.reading.read_tool(parts.files), "read_file"),
    "write_file": lambda parts: named(modules.writing.write_tool(parts.files), "write_file"),
    "edit_block": lambda parts: named(modules.writing.edit_tool(parts.files), "edit_block"),
    "list_dir": lambda parts: named(modules.finding.list_tool(parts.files), "list_dir"),
    "codesearch": lambda parts: named(modules.searching.search_code_tool(parts.files), "codesearch"),
    "bash": lambda parts: modules.bash.bash_tool(parts.commands, engine=parts.given.engine),
    **{name: partial(_job, name) for name in JOB_TOOLS},
    "git_status": lambda parts: modules.inspect_tools.git_status_tool(parts.sandbox),
    "git_diff": lambda parts: modules.inspect_tools.git_diff_tool(parts.sandbox),
    "git_log": lambda parts: modules.inspect_tools.git_log_tool(parts.sandbox),
    "git_branch": lambda parts: modules.inspect_tools.git_branch_tool(parts.sandbox),
    "git_commit": _commit,
    "webfetch": lambda _: modules.fetching.webfetch_tool(modules.egress_web.Web()),
    "websearch": lambda parts: modules.search.search_tool(parts.search),
    "json-transform": lambda _: modules.json_transform.json_transform_tool(),
    "browser": lambda parts: modules.browser_tool.browser_tool(parts.chromium, evaluate=parts.given.scripts),
    "canvas": lambda parts: modules.canvas.canvas_tool(parts.given.home / "canvas"),
    "nodes": lambda parts: modules.canvas.nodes_tool(parts.given.nodes),
    "read_temperature": lambda parts: modules.sensors.read_temperature_tool(parts.host),
    "read_cpu_usage": lambda parts: modules.sensors.read_cpu_usage_tool(parts.host),
    "read_memory": lambda parts: modules.sensors.read_memory_tool(parts.host),
    "read_disk": lambda parts: modules.sensors.read_disk_tool(parts.host),
    "system_info": lambda parts: modules.system.system_info_tool(parts.host),
    "network_info": lambda parts: modules.system.network_info_tool(parts.host),
    "list_processes": lambda parts: modules.system.list_processes_tool(parts.host),
    "gpio_list": lambda parts: modules.gpio_tools.gpio_list_tool(parts.given.device, parts.pins),
    "gpio_read": lambda parts: modules.gpio_tools.gpio_read_tool(parts.given.device, parts.pins),
    "gpio_write": lambda parts: modules.gpio_tools.gpio_write_tool(parts.given.device, parts.pins),
    "camera_capture": lambda parts: modules.camera.camera_capture_tool(parts.host),
    "ping": lambda _: modules.ping.ping_tool(),
    "safe_exec": _safe_exec,
    **{name: partial(_session, name) for name in SESSION_TOOLS},
    **{name: partial(_orchestration, name) for name in ORCHESTRATION_TOOLS},
    "workflow": _workflow,
    "openrouter_models_sync": _models_sync,
    "tool-show": lambda parts: modules.tool_show.tool_show_tool(parts.given.toolbox),
    "scheduler": lambda parts: modules.schedule_tools.scheduler_tool(parts.records),
    "schedule": lambda parts: modules.schedule_tools.schedule_tool(parts.records),
    "assign": lambda parts: modules.assign_tool.assign_tool(parts.records, parts.given.specialists),
    "breadcrumb-create": lambda parts: modules.record_writing.create_record_tool(parts.records),
    "breadcrumb-update": lambda parts: modules.record_writing.update_record_tool(parts.records),
    "breadcrumb-search": lambda parts: modules.record_search.search_records_tool(parts.records),
    "breadcrumb-approve": lambda parts: modules.record_writing.approve_record_tool(parts.records),
    "breadcrumb-context-merge": lambda parts: modules.record_writing.merge_context_tool(parts.records),
    **{name: partial(_model, name) for name in tools_for_models()},
}  # fmt: skip
"""How each tool is made."""

BUILT_IN = frozenset({*TOOLS, "skill"})
"""The names of all built-in tools, whether they are offered or not: rules and grants mean these by them."""

STANDARD = ("calculator", "echo", "random", "timer", "read")
"""The tools that every agent has."""

_READ_ONLY = ("read", "list", "glob", "grep", "find", "stat", "search_code", "image")
EDITING = ("write", "edit", "apply_patch")
PLANNING = ("todowrite", "todoread", "question")

DESKTOP = (
    "read", "write", "edit", "glob", "grep", "websearch", "webfetch", "codesearch", "bash", "question", "todowrite",
    "todoread", "task", "skill", "sessions_list", "sessions_history", "sessions_send", "sessions_spawn",
    "session_status", "agents_list", "git_status", "git_diff", "git_commit", "git_log", "git_branch", "apply_patch",
    "browser", "canvas", "nodes", "image",
)  # fmt: skip
"""The tools that one expects of an agent on a desktop."""

GROUPS: dict[str, tuple[str, ...]] = {
    "read_only": (*_READ_ONLY, "more"),
    "coding": (*_READ_ONLY, *EDITING, *PLANNING, "more"),
    "other_names": ("read_file", "write_file", "edit_block", "list_dir", "codesearch"),
    "shell": ("bash", *JOB_TOOLS, "more"),
    "git": ("git_status", "git_diff", "git_log", "git_branch", "git_commit"),
    "web": ("webfetch", "websearch", "more"),
    "search": ("websearch", "more"),
    "data": ("json-transform",),
    "image": ("image",),
    "browser": ("browser",),
    "canvas": ("canvas",),
    "nodes": ("nodes",),
    "device": DEVICE_TOOLS,
    "teamwork": SESSION_TOOLS,
    "orchestration": (*ORCHESTRATION_TOOLS, "agents_list", "session_status", "sessions_history"),
    "workflow": ("workflow",),
    "catalogue": ("tool-show",),
    "records": RECORD_TOOLS,
    "models": tuple(tools_for_models()),
    SKILLS: ("skill",),
    "desktop": (*DESKTOP, "more"),
}  # fmt: skip
"""The groups that settings and `--tools` can name, with the names of their tools."""

GROUPS["all"] = tuple(dict.fromkeys(name for names in GROUPS.values() for name in names))

WIDE = frozenset({"desktop", "all"})
"""The groups that only gather tools of others."""


def narrow_groups() -> dict[str, tuple[str, ...]]:
    """The groups for one purpose each."""
    return {group: names for group, names in GROUPS.items() if group not in WIDE}


def tool_names(groups: Iterable[str]) -> tuple[str, ...]:
    """The names of the tools in these groups, each once. Raises SettingsError for a group that does not exist.

    Not `skill`, which is made where skills are looked for.
    """
    found: dict[str, None] = {}
    for group in groups:
        if group not in GROUPS:
            near = get_close_matches(group[:40], GROUPS, 1, 0.75)
            advice = f"did you mean {near[0]}? There are" if near else "there are"
            raise SettingsError(
                f"--tools and tools.groups name groups of tools; there is no {group[:80]!r}; "
                f"{advice} {', '.join(GROUPS)}"
            )
        found |= dict.fromkeys(name for name in GROUPS[group] if name in TOOLS)
    return tuple(found)


def deferred_tools(names: Iterable[str], given: ToolDependencies) -> tuple[DeferredTool, ...]:
    """The built-in tools of these names, each made when it is first used; `more` only where long results are kept."""
    parts, reads_on = SharedDependencies(given), given.fetch is not None or given.store is not None
    return tuple(DeferredTool(name, partial(TOOLS[name], parts)) for name in names if name != "more" or reads_on)


def make_tools(names: Iterable[str], given: ToolDependencies) -> tuple[Tool, ...]:
    """The same, made now."""
    return tuple(each.tool for each in deferred_tools(names, given))


def tools_of(groups: Iterable[str], given: ToolDependencies) -> tuple[Tool, ...]:
    """The tools of these groups, each once. Raises SettingsError for a group that does not exist."""
    return make_tools(tool_names(groups), given)


@cache
def built_in_tool(name: str) -> Tool | None:
    """A built-in tool, made to be looked at and not to be called; None for another name."""
    return next(iter(make_tools([name], ToolDependencies())), None) if name in TOOLS else None


def group_of(name: str) -> str:
    """The smallest group that has a tool of this name; empty if none has."""
    return next((group for group, names in narrow_groups().items() if name in names), "")


def reads_skills(groups: Iterable[str]) -> bool:
    """Whether the tool that reads skills is wanted even where there are none yet."""
    return any("skill" in GROUPS.get(group, ()) for group in groups)
