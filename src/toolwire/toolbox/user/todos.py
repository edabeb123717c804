"""A list of tasks that a model keeps for itself, one for each conversation."""

import hashlib
import os
import threading
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypedDict

import orjson

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.files import Change, FileOps
from toolwire.protocol.provenance import TODOS
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.record.ownership import open_inner
from toolwire.toolbox.disk.local_files import LocalFiles
from toolwire.toolbox.files.granted_paths import wrong

MOST_TASKS = 500

Priority = Literal["low", "medium", "high"]
State = Literal["open", "done"]
_ORDER = {"high": 0, "medium": 1, "low": 2}


class Todo(TypedDict):
    task: Annotated[str, Field(description="What is to be done.")]
    priority: Annotated[Priority, Field(description="How much it matters.")]
    status: Annotated[State, Field(description="Whether it is still open.")]


class Todos(Protocol):
    """Keeps a list of tasks for each conversation."""

    def read(self, conversation: str) -> list[Todo]:
        """The tasks, in the order in which they were written. Raises OSError."""
        ...

    def write(self, conversation: str, todos: list[Todo]) -> None:
        """Keep these tasks instead. Raises OSError."""
        ...


class MemoryTodos:
    """Tasks that end with the process."""

    def __init__(self) -> None:
        self._lists: dict[str, list[Todo]] = {}

    def read(self, conversation: str) -> list[Todo]:
        return list(self._lists.get(conversation, []))

    def write(self, conversation: str, todos: list[Todo]) -> None:
        self._lists[conversation] = list(todos)


class FileTodos:
    """Tasks in a folder, one file for each conversation, so that they are there the next day."""

    def __init__(self, folder: Path, files: FileOps | None = None) -> None:
        self._folder = folder
        self._files = files or LocalFiles()

    def read(self, conversation: str) -> list[Todo]:
        if not os.path.lexists(self._folder):
            return []
        os.close(open_inner(self._folder))
        try:
            with self._files.open(str(self._folder), _file_name(conversation)) as file:
                kept = orjson.loads(file.read())
        except FileNotFoundError:
            return []
        except orjson.JSONDecodeError:
            raise OSError("the kept list of tasks cannot be read") from None
        return [{"task": str(one["task"]), "priority": one["priority"], "status": one["status"]} for one in kept]

    def write(self, conversation: str, todos: list[Todo]) -> None:
        os.close(open_inner(self._folder))
        self._files.change(str(self._folder), [Change(_file_name(conversation), orjson.dumps(todos))])


class TodoOutput(TypedDict):
    todos: Annotated[list[Todo], Field(description="The tasks; what matters most comes first.")]
    open: Annotated[int, Field(description="How many tasks are open, shown or not.")]
    done: Annotated[int, Field(description="How many tasks are done, shown or not.")]


def todowrite_tool(todos: Todos) -> Tool:
    """The tool that adds a task, or changes the one with the same words."""
    lock = threading.Lock()

    @tool(
        name="todowrite",
        tier=Tier.CRAWL,
        effect=Effect.IDEMPOTENT,
        category="interaction",
        writes=("todos",),
        examples=({"task": "write the tests", "priority": "high"}, {"task": "write the tests", "status": "done"}),
    )
    def todowrite(
        context: Context,
        task: Annotated[str, Field(min_length=1, max_length=1000)],
        priority: Priority | None = None,
        status: State = "open",
    ) -> TodoOutput:
        """Add a task to the todo list, or change the one with the same words, such as to mark it done.

        Args:
            task: What is to be done.
            priority: How much it matters; medium for a new task.
            status: Whether it is open or done.
        """
        with lock:
            kept = _read(todos, context)
            old = next((one for one in kept if one["task"] == task), None)
            if old is None and len(kept) >= MOST_TASKS:
                raise wrong(f"the list holds {MOST_TASKS} tasks already; finish some")
            usual: Priority = old["priority"] if old else "medium"
            new: Todo = {"task": task, "priority": priority or usual, "status": status}
            kept = [new if one["task"] == task else one for one in kept] + ([] if old else [new])
            try:
                todos.write(_conversation(context), kept)
                context.touched(TODOS + _conversation(context), writes=True)
            except OSError as error:
                raise ToolFailure(f"the list of tasks cannot be kept: {error.strerror or error}") from None
        return _output(kept, "all", None)

    return todowrite


def todoread_tool(todos: Todos) -> Tool:
    """The tool that shows the list of tasks."""

    @tool(
        name="todoread",
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="interaction",
        reads=("todos",),
        polling=True,
        examples=({}, {"status": "open", "priority": "high"}),
    )
    def todoread(
        context: Context,
        status: Literal["open", "done", "all"] = "all",
        priority: Priority | None = None,
    ) -> TodoOutput:
        """Read the todo list.

        Args:
            status: Show only tasks that are open, or only those that are done.
            priority: Show only tasks of this priority.
        """
        return _output(_read(todos, context), status, priority)

    return todoread


def _read(todos: Todos, context: Context) -> list[Todo]:
    context.touched(TODOS + _conversation(context))
    try:
        return todos.read(_conversation(context))
    except (OSError, KeyError, TypeError) as error:
        raise ToolFailure(f"the list of tasks cannot be read: {error}") from None


def _output(kept: list[Todo], status: str, priority: Priority | None) -> TodoOutput:
    shown = [
        one for one in kept if status in {"all", one["status"]} and (priority is None or one["priority"] == priority)
    ]
    is_open = sum(one["status"] == "open" for one in kept)
    shown.sort(key=lambda one: (one["status"] == "done", _ORDER.get(one["priority"], 1)))
    return {"todos": shown, "open": is_open, "done": len(kept) - is_open}


def _conversation(context: Context) -> str:
    return f"{context.project}/{context.agent}/{context.thread or context.turn_id}"


def _file_name(conversation: str) -> str:
    return f"{hashlib.sha256(conversation.encode()).hexdigest()[:32]}.json"
