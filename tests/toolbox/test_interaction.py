"""Tools that plan, ask and show: todos, questions, images; and tools in groups, under other names and in pipes."""

import io
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Pillow

from toolwire import Agent, MemoryStore, Toolbox
from toolwire.define.conformance import report
from toolwire.errors import DefinitionError, ToolFailure
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import Image, ToolCall, ToolOutput
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Grant, Tier, Tool
from toolwire.protocol.turns import Turn
from toolwire.testing import MemoryFiles, ScriptedModel
from toolwire.testing import call as model_calls
from toolwire.toolbox import (
    GROUPS,
    FileTodos,
    LocalFiles,
    MemoryTodos,
    ToolDependencies,
    coding,
    editing,
    grep_text_tool,
    image_tool,
    named,
    other_names,
    pipe,
    question_tool,
    random_tool,
    read_only,
    read_tool,
    remote,
    standard,
    timer_tool,
    todoread_tool,
    todowrite_tool,
    tools_of,
    write_tool,
)
from toolwire.toolbox.user.todos import Todos

Call = Callable[..., Any]


@pytest.fixture(params=["memory", "files"])
def todos(request: pytest.FixtureRequest, tmp_path: Path) -> Todos:
    return MemoryTodos() if request.param == "memory" else FileTodos(tmp_path / "todos")


@pytest.mark.feature("F253")
def test_tasks_are_kept_changed_and_filtered(call: Call, todos: Todos) -> None:
    write, read = todowrite_tool(todos), todoread_tool(todos)
    context = Context(thread="house")
    call(write, context, task="paint", priority="low")
    call(write, context, task="build", priority="high")
    call(write, context, task="plan")
    after = call(write, context, task="paint", status="done")
    assert after["todos"] == [
        {"task": "build", "priority": "high", "status": "open"},
        {"task": "plan", "priority": "medium", "status": "open"},
        {"task": "paint", "priority": "low", "status": "done"},
    ]
    assert (after["open"], after["done"]) == (2, 1)
    assert [one["task"] for one in call(read, context, status="done")["todos"]] == ["paint"]
    assert [one["task"] for one in call(read, context, priority="high")["todos"]] == ["build"]
    assert call(write, context, task="plan") == call(write, context, task="plan"), "again is the same"


@pytest.mark.feature("F253")
def test_each_conversation_has_its_own_tasks(call: Call, todos: Todos) -> None:
    write, read = todowrite_tool(todos), todoread_tool(todos)
    call(write, Context(thread="one"), task="a")
    call(write, Context(turn_id="alone"), task="b")
    assert [one["task"] for one in call(read, Context(thread="one", turn_id="later"))["todos"]] == ["a"]
    assert [one["task"] for one in call(read, Context(turn_id="alone"))["todos"]] == ["b"]
    assert call(read, Context(thread="other"))["todos"] == []


def test_tasks_in_files_are_there_for_the_next_process_and_broken_ones_are_said(call: Call, tmp_path: Path) -> None:
    call(todowrite_tool(FileTodos(tmp_path)), Context(thread="t"), task="a")
    assert [one["task"] for one in call(todoread_tool(FileTodos(tmp_path)), Context(thread="t"))["todos"]] == ["a"]
    [kept] = tmp_path.glob("*.json")
    kept.write_text("{broken")
    with pytest.raises(ToolFailure, match="cannot be read"):
        call(todoread_tool(FileTodos(tmp_path)), Context(thread="t"))


async def test_the_tasks_of_a_thread_are_there_in_its_next_turn() -> None:
    store = MemoryStore()
    kept = MemoryTodos()
    for number in (1, 2):
        script = model_calls("todowrite", task=f"task {number}"), "done"
        await Agent(ScriptedModel(*script), [todowrite_tool(kept)], store=store).ask("go", thread="house")
    assert [one["task"] for one in kept.read("default/agent/house")] == ["task 1", "task 2"]


@pytest.mark.feature("F252")
async def test_a_question_reaches_the_user_and_the_answer_the_model(call: Call) -> None:
    asked: list[tuple[str, Sequence[str]]] = []

    async def ask(prompt: str, choices: Sequence[str]) -> str:
        asked.append((prompt, choices))
        return " Blue \n"

    tool = question_tool(ask)
    assert await call(tool, prompt="Which colour?", choices=["red", "blue"]) == {"answer": "Blue", "chosen": 1}
    assert await call(tool, prompt="Why?") == {"answer": "Blue", "chosen": None}
    assert asked == [("Which colour?", ["red", "blue"]), ("Why?", ())]


@pytest.mark.parametrize(
    ("answer", "chosen"), [("2", 1), ("3", None), ("0", None), ("RED", 0), ("²", None), ("", None)]
)
async def test_a_choice_is_understood_by_its_words_or_number(call: Call, answer: str, chosen: int | None) -> None:
    async def ask(prompt: str, choices: Sequence[str]) -> str:
        return answer

    assert (await call(question_tool(ask), prompt="?", choices=["red", "blue"]))["chosen"] == chosen


@pytest.mark.feature("F252")
async def test_without_anyone_to_ask_the_model_is_told_what_to_do_instead(call: Call) -> None:
    with pytest.raises(ToolFailure, match="no user can be asked here") as raised:
        await call(question_tool(), prompt="?")
    assert raised.value.code is Code.UNAVAILABLE


def picture(kind: str, size: tuple[int, int] = (40, 20)) -> bytes:
    out = io.BytesIO()
    Pillow.new("RGB", size, (200, 30, 30)).save(out, kind)
    return out.getvalue()


@pytest.mark.feature("F259")
@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "webp"])
async def test_an_image_is_described_shown_and_resized(
    call: Call, workspace: Path, granted: Context, kind: str
) -> None:
    (workspace / "a").write_bytes(picture(kind))
    tool = image_tool(LocalFiles())
    facts = call(tool, granted, path="a", action="metadata")
    assert isinstance(facts, ToolOutput)
    assert (facts.structured["format"], facts.structured["width"], facts.structured["height"]) == (kind, 40, 20)
    assert len(facts.content) == 1
    shown = call(tool, granted, path="a")
    assert isinstance(shown.content[1], Image)
    assert shown.content[1].media_type == f"image/{kind}"
    small = call(tool, granted, path="a", action="resize", width=10)
    assert (small.structured["shown_width"], small.structured["shown_height"]) == (10, 5)

    store = MemoryStore()
    turn = Turn("t", grant=Grant(roots=(str(workspace),), permissions=frozenset({"file_read"})))
    result = await Runtime(Toolbox(tool), store).execute(ToolCall("image", {"path": "a"}, id="c"), turn)
    assert any(isinstance(block, Image) for block in result.content), "the model gets the image as a block"


def bomb() -> bytes:
    """A few bytes that promise a picture of forty thousand by forty thousand."""
    head = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))


@pytest.mark.parametrize(
    ("body", "arguments", "words"),
    [
        (b"not an image", {}, "is not a PNG"),
        (b"", {}, "is not a PNG"),
        (b"\xff\xd8\xff", {}, "is not a PNG"),
        (b"GIF89a", {}, "is not a PNG"),
        (b"RIFF....WEBPVP8 ", {}, "is not a PNG"),
        (bomb(), {"action": "resize", "width": 10}, "pixels"),
        (picture("png")[:60], {"action": "resize", "width": 10}, "is broken"),
        (picture("png"), {"action": "resize"}, "needs width"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1" + bytes(6_000_000), {}, "too many to show"),
    ],
)
def test_what_is_no_image_or_too_much_of_one_is_refused(
    workspace: Path, granted: Context, body: bytes, arguments: dict[str, Any], words: str
) -> None:
    (workspace / "a").write_bytes(body)
    with pytest.raises(ToolFailure, match=words):
        image_tool(LocalFiles())(granted, "a", **arguments)


async def fetch(handle: str, offset: int, length: int) -> bytes:
    return b""


def every_tool() -> list[Tool]:
    return [*coding(fetch=fetch), *other_names(), grep_text_tool(), *standard()[:4]]


@pytest.mark.parametrize("tool", every_tool(), ids=lambda tool: tool.name)
def test_every_tool_conforms_without_a_remark(tool: Tool) -> None:
    assert report(tool) == []
    assert tool.examples


@pytest.mark.parametrize("tool", [*read_only(), *editing()], ids=lambda tool: tool.name)
def test_file_tools_declare_what_they_need_and_touch(tool: Tool) -> None:
    assert tool.category == "file"
    assert tool.reads or tool.writes
    changes = tool.effect is not Effect.PURE
    assert ("file_write" in tool.needs) is changes
    assert tool.tier is (Tier.RUN if changes else Tier.CRAWL)
    assert tool.needs <= {"file_read", "file_write"}


@pytest.mark.feature("F061")
def test_groups_are_made_from_what_their_tools_touch(call: Call) -> None:
    files = MemoryFiles({"a.txt": "far away"})
    context = Context(grant=Grant(roots=("/workspace",)))
    by_name = {tool.name: tool for tool in remote(files)}
    assert call(by_name["read"], context, path="a.txt")["text"] == "far away"
    call(by_name["write"], context, path="b.txt", content="x")
    assert files.files["b.txt"] == b"x"
    assert {tool.name for tool in read_only(files)} <= {tool.name for tool in coding(files)}
    assert all(tool.effect is Effect.PURE for tool in read_only(files))
    assert "more" in {tool.name for tool in coding(files, fetch=fetch)}
    for name in GROUPS:
        tools = tools_of([name], ToolDependencies(files=files, fetch=fetch))
        if name == "skills":
            continue  # made where skills are looked for
        assert len({tool.name for tool in tools}) == len(tools) > 0, name
        Toolbox(*tools)


@pytest.mark.feature("F261")
def test_a_tool_under_another_name_is_the_same_tool(call: Call, workspace: Path, granted: Context) -> None:
    by_name = {tool.name: tool for tool in other_names()}
    call(by_name["write_file"], granted, path="a.txt", content="one\n")
    call(by_name["write_file"], granted, path="a.txt", content="two\n", mode="append")
    assert call(by_name["read_file"], granted, path="a.txt")["text"] == "one\ntwo\n"
    assert call(by_name["codesearch"], granted, query="two")["hits"][0]["path"] == "a.txt"
    assert named(write_tool(LocalFiles()), "save").needs == write_tool(LocalFiles()).needs


@pytest.mark.feature("F183")
async def test_what_one_tool_reads_another_searches(workspace: Path) -> None:
    (workspace / "log.txt").write_text("fine\nERROR disk\nfine\nERROR net\n")
    read_grep = pipe(
        read_tool(LocalFiles()),
        grep_text_tool(),
        take="text",
        into="text",
        name="read_grep",
        description="Show the lines of a file that match a pattern.",
    )
    assert report(read_grep) == []
    assert read_grep.needs == frozenset({"file_read"})
    assert (read_grep.effect, read_grep.reads) == (Effect.PURE, ("file:{path}",))
    arguments = {"path": "log.txt", "pattern": "^ERROR", "offset": 3}
    granted = Grant(roots=(str(workspace),), permissions=frozenset({"file_read"}))
    runtime = Runtime(Toolbox(read_grep), MemoryStore())
    result = await runtime.execute(ToolCall("read_grep", arguments, id="c"), Turn("t", grant=granted))
    assert result.structured == {"matches": [{"line": 2, "text": "ERROR net"}], "truncated": False}
    refused = await runtime.execute(ToolCall("read_grep", arguments, id="d"), Turn("t", grant=Grant()))
    assert refused.error is not None
    assert refused.error.code is Code.PERMISSION_DENIED
    missing = await runtime.execute(
        ToolCall("read_grep", {"path": "no", "pattern": "x"}, id="e"), Turn("t", grant=granted)
    )
    assert missing.error is not None
    assert missing.error.code is Code.NOT_FOUND


def test_tools_that_do_not_fit_together_are_not_piped() -> None:
    read = read_tool(LocalFiles())
    for first, second, into, words in (
        (read, grep_text_tool(), "nothing", "takes no 'nothing'"),
        (read, read, "offset", "both take 'limit'|both take 'path'"),
        (timer_tool(), grep_text_tool(), "text", "not a plain function"),
        (random_tool(), timer_tool(), "seconds", "not a plain function"),
    ):
        with pytest.raises(DefinitionError, match=words):
            pipe(first, second, take="text", into=into, name="x", description="x")
