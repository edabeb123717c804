"""Does safety get in the way? Five hundred ordinary calls under the default policy and a grant of one workspace.

`python -m benchmarks.ordinary_tasks` runs them all; tests run a sample. The grant is what somebody gives who wants work
done in a folder: every tier, files, shell and git in that folder, no network, everything else as it comes. Each call
has a fresh copy of a small project. It *works* when its result is a success and shows what the task says. A person
who is asked says yes, and that counts as working only where the tool changes things, since `supervised` promises to ask
there; whatever else asks, is refused, fails or shows something else, counts as not working. Commands that are known
to only read run unasked. How many questions there were is printed, and how many of them changed no file in the end:
programs that could have written, such as `python3 -c`.
"""

import asyncio
import csv
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ordinary_project import make_project
from toolwire import Agent, Approval, Effect, Grant, Tier, Tool
from toolwire.protocol.calls import NeedsApproval, ToolResult
from toolwire.testing import ScriptedModel
from toolwire.toolbox import standard
from toolwire.toolbox.registry import ToolDependencies, tools_of

TASKS = Path(__file__).with_suffix(".tsv")
GROUPS = ("coding", "shell", "git", "data")
PERMISSIONS = frozenset({"file_read", "file_write", "shell", "git"})


@dataclass(frozen=True, slots=True)
class Task:
    """One call as people make it, and a word that its result must show."""

    tool: str
    arguments: dict[str, Any]
    shows: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a task. `trouble` is empty where it worked; `asked` tells of a person, `changed` of the files."""

    task: Task
    asked: bool
    changed: bool
    trouble: str


def tasks() -> list[Task]:
    with TASKS.open(encoding="utf-8", newline="") as table:
        rows = csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        return [Task(tool, json.loads(arguments), shows) for tool, arguments, shows in rows]


def sample(count: int, seed: int) -> list[Task]:
    """Some of the tasks, the same ones for the same seed."""
    return random.Random(seed).sample(tasks(), count)


def toolbox() -> list[Tool]:
    usual = {tool.name: tool for tool in standard()}
    place = ToolDependencies(user_home=Path.home(), path=os.environ.get("PATH", ""))
    return [*({tool.name: tool for tool in tools_of(GROUPS, place)} | usual).values()]


class Willing:
    """A person who says yes, and remembers having been asked."""

    def __init__(self) -> None:
        self.asked: list[Tool] = []

    async def __call__(self, request: NeedsApproval) -> Approval:
        self.asked.append(request.allowed.tool)
        return Approval(granted=True)


@asynccontextmanager
async def working_in(folder: Path, person: Willing) -> AsyncIterator[Agent]:
    grant = Grant(tier=Tier.RUN, permissions=PERMISSIONS, roots=(str(folder),), platform=sys.platform)
    async with Agent(ScriptedModel(), toolbox(), grant=grant, approve=person) as agent:
        yield agent


async def done(task: Task, project: Path) -> Outcome:
    """Do one task in a copy of the project."""
    person = Willing()
    with tempfile.TemporaryDirectory(prefix="ordinary-") as place:
        folder = Path(shutil.copytree(project, Path(place) / "shop", symlinks=True))
        async with working_in(folder, person) as agent:
            result = await agent.call(task.tool, task.arguments)
        changed = _files(folder) != _files(project)
    return Outcome(task, bool(person.asked), changed, _trouble(task, result, person.asked))


def _files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder; of git only its refs, since looking touches the rest."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    kept = {name: path for name, path in files.items() if not name.startswith(".git/") or "/refs/" in name}
    return {name: path.read_bytes() for name, path in kept.items()}


def _trouble(task: Task, result: ToolResult, asked: Sequence[Tool]) -> str:
    if any(tool.effect is Effect.PURE for tool in asked):
        return "a person was asked although nothing could change"
    if not result.ok:
        code = result.error.code if result.error else result.status
        return f"{code}: {result.text[:200]}"
    exit_code = result.exit_code or (result.structured or {}).get("exit_code")
    if exit_code:
        return f"exit code {exit_code}: {result.text[:200]}"
    shown = f"{result.text}\n{json.dumps(result.structured, ensure_ascii=False, default=str)}"
    return "" if task.shows in shown else f"does not show {task.shows!r}: {result.text[:200]}"


async def all_done(chosen: Iterable[Task]) -> list[Outcome]:
    """Do these tasks, one after the other."""
    with tempfile.TemporaryDirectory(prefix="ordinary-") as place:
        project = Path(place) / "shop"
        make_project(project)
        return [await done(task, project) for task in chosen]


def report(outcomes: Sequence[Outcome]) -> str:
    worked = [one for one in outcomes if not one.trouble]
    asked = Counter(one.task.tool for one in worked if one.asked)
    looked = sum(one.asked and not one.changed for one in worked)
    total = (
        f"{len(worked)} of {len(outcomes)} ordinary tasks work ({len(worked) / len(outcomes):.1%}): "
        f"{len(worked) - asked.total()} without a question, {asked.total()} after a person's yes, "
        f"{asked.total() / len(outcomes):.1%} of all "
        f"({', '.join(f'{tool} {count}' for tool, count in asked.most_common())}), of which {looked} changed no file."
    )
    return "\n".join([total, *(f"  {_shown(one.task)} -> {one.trouble}" for one in outcomes if one.trouble)])


def _shown(task: Task) -> str:
    return f"{task.tool} {json.dumps(task.arguments, ensure_ascii=False)[:120]}"


def main() -> int:
    outcomes = asyncio.run(all_done(tasks()))
    sys.stdout.write(report(outcomes) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
