"""A developer's day: sixty ordinary tasks, of which twenty-six only read.

`python -m benchmarks.developer_tasks` runs them all, under the grant of `ordinary_tasks` and the default policy. A task
that *reads* works when its result is right and no approval was asked for; a task that *changes* something may ask once.
Programs that are not installed on this machine are named, and their tasks are not counted.
"""

import asyncio
import csv
import gzip
import json
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ordinary_project import FILES, make_project
from benchmarks.ordinary_tasks import Outcome, Task, done

TASKS = Path(__file__).with_suffix(".tsv")


@dataclass(frozen=True, slots=True)
class DeveloperTask:
    """A task, whether it only reads, and the program that it needs, if not every machine has it."""

    task: Task
    reads: bool
    program: str


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of it. One that only reads has failed if it asked."""

    task: DeveloperTask
    outcome: Outcome

    @property
    def trouble(self) -> str:
        asked_in_vain = self.task.reads and self.outcome.asked
        return self.outcome.trouble or ("it asked, and only reads" if asked_in_vain else "")


def developer_tasks() -> list[DeveloperTask]:
    with TASKS.open(encoding="utf-8", newline="") as table:
        rows = csv.reader(table, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)
        return [
            DeveloperTask(Task(tool, json.loads(arguments), shows), kind == "reads", program)
            for kind, program, tool, arguments, shows in rows
        ]


def is_possible(task: DeveloperTask) -> bool:
    """Whether this machine has the program that a task is about."""
    return not task.program or shutil.which(task.program) is not None


def make_developer_project(folder: Path) -> None:
    """The ordinary project with archives, a database, an old log and an environment of its own, none of them in git."""
    make_project(folder)
    (folder / ".git" / "info" / "exclude").write_text("/dist/\n/.venv/\n*.gz\n*.db\n")
    (folder / "dist").mkdir()
    cart = folder / "src" / "shop" / "cart.py"
    with tarfile.open(folder / "dist" / "shop.tar.gz", "w:gz") as archive:
        archive.add(cart, "shop/cart.py")
    with zipfile.ZipFile(folder / "dist" / "shop.zip", "w") as packed:
        packed.write(cart, "shop/cart.py")
    (folder / "data" / "old.log.gz").write_bytes(gzip.compress(FILES["data/log.txt"].encode()))
    orders = [tuple(line.split(",")) for line in FILES["data/orders.csv"].splitlines()[1:]]
    database = sqlite3.connect(folder / "data" / "shop.db")
    with database:
        database.execute("create table orders (id, customer, item, price)")
        database.executemany("insert into orders values (?, ?, ?, ?)", orders)
    database.close()
    venv.create(folder / ".venv", symlinks=True)


async def all_tried(chosen: Iterable[DeveloperTask]) -> list[Tried]:
    """Do these tasks, one after the other, each in a copy of the project."""
    with tempfile.TemporaryDirectory(prefix="developer-") as place:
        project = Path(place) / "shop"
        make_developer_project(project)
        return [Tried(one, await done(one.task, project)) for one in chosen]


def developer_report(tried: Sequence[Tried], impossible: Sequence[DeveloperTask] = ()) -> str:
    worked = [one for one in tried if not one.outcome.trouble]
    reading = [one for one in tried if one.task.reads]
    asked = sum(one.outcome.asked for one in worked)
    lines = [
        f"{len(worked)} of {len(tried)} tasks of a developer work: {len(worked) - asked} unasked, {asked} after one "
        f"approval. Of {len(reading)} that only read, {sum(one.outcome.asked for one in reading)} ask."
    ]
    lines += [f"  {one.task.task.tool} {_shown(one)} -> {one.trouble}" for one in tried if one.trouble]
    if missing := sorted({task.program for task in impossible}):
        lines.append(f"  not installed here, {len(impossible)} tasks not counted: {', '.join(missing)}")
    return "\n".join(lines)


def _shown(one: Tried) -> str:
    return json.dumps(one.task.task.arguments, ensure_ascii=False)[:120]


def main() -> int:
    tasks = developer_tasks()
    tried = asyncio.run(all_tried(filter(is_possible, tasks)))
    sys.stdout.write(developer_report(tried, [task for task in tasks if not is_possible(task)]) + os.linesep)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
