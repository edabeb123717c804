"""The groups of built-in tools that settings can name, each loaded when it is named and given what it touches."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from toolwire.errors import SettingsError
from toolwire.protocol.tools import Tool
from toolwire.protocol.values import dataclass
from toolwire.toolbox.paging import Keeper, from_store, more_tool
from toolwire.toolbox.question import Ask

USUAL_ENGINE = "bubblewrap"
USUAL_HOME = Path(".toolwire")
SKILLS = "skills"
"""The group of the tool that reads skills. It is made where skills are looked for."""

DESKTOP = (
    "read", "write", "edit", "glob", "grep", "websearch", "webfetch", "codesearch", "bash", "question", "todowrite",
    "todoread", "task", "skill", "sessions_list", "sessions_history", "sessions_send", "sessions_spawn",
    "session_status", "agents_list", "git_status", "git_diff", "git_commit", "git_log", "git_branch", "apply_patch",
    "browser", "canvas", "nodes", "image",
)  # fmt: skip
"""The tools that one expects of an agent on a desktop."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What the tools of a group are given: the weakest sandbox, what pages through long results, who can be asked.

    In `home` lie pages for the user and, if it `keeps`, plans for the next process. `search` gives what websearch asks,
    `models` are lines such as "openrouter vendor/model", `crew` gives the agents that can be set to work, `scripts` let
    the browser run scripts of the model's own, a workspace holds at most `most_bytes`, one command takes at most a
    `disk_share` of what is free, and what has to be closed in the end is put on `closing`. Commands may read the
    `toolchains` in `user_home`, found there and by the user's `path`, and further `readable` folders.
    """

    engine: str = USUAL_ENGINE
    store: Keeper | None = None
    ask: Ask | None = None
    home: Path = USUAL_HOME
    keeps: bool = False
    search: Callable[[], Any] | None = None
    models: tuple[str, ...] = ()
    crew: Callable[[], Any] | None = None
    scripts: bool = False
    most_bytes: int | None = None
    disk_share: float | None = None
    closing: AsyncExitStack | None = None
    user_home: Path | None = None
    path: str = ""
    toolchains: bool = True
    readable: tuple[str, ...] = ()


def tools_of(groups: Iterable[str], place: Workplace) -> tuple[Tool, ...]:
    """The tools of these groups, each once. Raises SettingsError for a group that does not exist."""
    found: dict[str, Tool] = {}
    for name in groups:
        if name not in OUTFITS:
            near = get_close_matches(name[:40], OUTFITS, 1, 0.75)
            advice = f"did you mean {near[0]}? There are" if near else "there are"
            known = ", ".join(OUTFITS)
            raise SettingsError(
                f"--tools and tools.groups name groups of tools; there is no {name[:80]!r}; {advice} {known}"
            )
        for tool in OUTFITS[name](place):
            found.setdefault(tool.name, tool)
    return tuple(found.values())


def built_in_tool(name: str) -> Tool | None:
    """A tool of any group, made to be looked at and not to be called; None for another name."""
    found = (tool for group in OUTFITS if group not in ("desktop", "all") for tool in _looked_at(group))
    return next((tool for tool in found if tool.name == name), None)


@cache
def _looked_at(group: str) -> tuple[Tool, ...]:
    return OUTFITS[group](Workplace())


def reads_skills(groups: Iterable[str]) -> bool:
    """Whether the tool that reads skills is wanted even where there are none yet."""
    return not {SKILLS, "desktop", "all"}.isdisjoint(groups)


def _load(name: str) -> Any:
    """A group's own module is loaded when it is asked for: most turns need few of them."""
    return import_module(f"toolwire.toolbox.{name}")


def _read_only(place: Workplace) -> tuple[Tool, ...]:
    return (*_load("groups").read_only(_files(place)), *_paging(place))


def _coding(place: Workplace) -> tuple[Tool, ...]:
    kept = _load("todos")
    todos = kept.FileTodos(place.home / "todos") if place.keeps else kept.MemoryTodos()
    return (*_load("groups").coding(_files(place), todos=todos, ask=place.ask), *_paging(place))


def _paging(place: Workplace) -> tuple[Tool, ...]:
    return (more_tool(from_store(place.store)),) if place.store else ()


def _shell(place: Workplace) -> tuple[Tool, ...]:
    ops = _with_toolchains(place, _sandbox(place))
    bash = _load("shell").bash_tool(ops, engine=place.engine)
    jobs = _load("jobs").Jobs(ops)
    if place.closing is not None:
        place.closing.push_async_exit(jobs)
    return (bash, *_load("job_tools").job_tools(jobs, engine=place.engine), *_paging(place))


def _git(place: Workplace) -> tuple[Tool, ...]:
    return (*_load("git").git(_sandbox(place)),)


def _web(place: Workplace) -> tuple[Tool, ...]:
    return (_load("web").webfetch_tool(import_module("toolwire.execute.egress.web").Web()), *_search(place))


def _search(place: Workplace) -> tuple[Tool, ...]:
    backend = place.search() if place.search else None
    if place.closing is not None and (close := getattr(backend, "close", None)):
        place.closing.callback(close)
    searching = _load("search")
    return searching.search_tool(backend or searching.NoBackend()), *_paging(place)


def _data(_: Workplace) -> tuple[Tool, ...]:
    return (_load("data").json_transform_tool(),)


def _image(place: Workplace) -> tuple[Tool, ...]:
    return (_load("pictures").image_tool(_files(place)),)


def _browser(place: Workplace) -> tuple[Tool, ...]:
    chromium = _load("browser_chromium").Chromium()
    if place.closing is not None:
        place.closing.push_async_exit(chromium)
    return (_load("browser").browser_tool(chromium, evaluate=place.scripts),)


def _canvas(place: Workplace) -> tuple[Tool, ...]:
    return (_load("canvas").canvas_tool(place.home / "canvas"),)


def _nodes(_: Workplace) -> tuple[Tool, ...]:
    return (_load("canvas").nodes_tool(),)


def _teamwork(place: Workplace) -> tuple[Tool, ...]:
    crew = place.crew() if place.crew else _load("delegation").Crew(_nowhere(), ())
    return (*_load("errands").teamwork(crew),)


def _nowhere() -> Any:
    """A store that knows of no turn."""
    return import_module("toolwire.record.memory").MemoryStore()


def _models(place: Workplace) -> tuple[Tool, ...]:
    asking = _load("asking")
    return tuple(asking.asking_tool(name, asking.named(name, place.models)) for name in asking.NAMES)


def _desktop(place: Workplace) -> tuple[Tool, ...]:
    parts = ("coding", "other_names", "shell", "git", "web", "teamwork", "browser", "canvas", "nodes")
    every = {tool.name: tool for part in parts for tool in OUTFITS[part](place)}
    return tuple(every[name] for name in (*DESKTOP, "more") if name in every)


def _all(place: Workplace) -> tuple[Tool, ...]:
    every: dict[str, Tool] = {}
    for name, make in OUTFITS.items():
        if name not in ("desktop", "all"):
            every |= {tool.name: tool for tool in make(place) if tool.name not in every}
    return tuple(every.values())


def _files(place: Workplace) -> Any:
    files = _load("local_files").LocalFiles()
    return files if place.most_bytes is None else _quota().QuotaFiles(files, place.most_bytes)


def _sandbox(place: Workplace) -> Any:
    return sandbox_of(place.engine, place.most_bytes, place.disk_share)


def sandbox_of(engine: str, most_bytes: int | None, disk_share: float | None) -> Any:
    """What runs commands: in this engine at least, in a workspace that holds no more than so many bytes.

    One command takes at most this share of what is free on the disk.
    """
    box = ops = import_module("toolwire.execute.sandbox.engines").local_sandbox(floor=engine, default=engine)
    if disk_share is not None:
        ops = _quota().ShareExec(ops, disk_share, engine=box.choice)
    return ops if most_bytes is None else _quota().QuotaExec(ops, most_bytes, engine=box.choice)


def _with_toolchains(place: Workplace, ops: Any) -> Any:
    """The same, with the toolchains of the user's home to read, and the folders that the settings name."""
    home = place.user_home
    if home is None or place.engine == "none" or not (place.toolchains or place.readable):
        return ops
    found = import_module("toolwire.execute.toolchains")
    find = partial(found.find_toolchains, home, place.path, place.readable, recognise=place.toolchains)
    return found.ToolchainExec(ops, home, find, environments=place.toolchains)


def _quota() -> Any:
    return import_module("toolwire.execute.quota")


OUTFITS: Mapping[str, Callable[[Workplace], tuple[Tool, ...]]] = {
    "read_only": _read_only,
    "coding": _coding,
    "other_names": lambda place: tuple(_load("groups").other_names(_files(place))),
    "shell": _shell,
    "git": _git,
    "web": _web,
    "search": _search,
    "data": _data,
    "image": _image,
    "browser": _browser,
    "canvas": _canvas,
    "nodes": _nodes,
    "teamwork": _teamwork,
    "models": _models,
    SKILLS: lambda _: (),
    "desktop": _desktop,
    "all": _all,
}
