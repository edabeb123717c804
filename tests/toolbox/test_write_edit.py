"""Writing and editing files: exactly, at once, and only where nothing else obeys what is written."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolwire import Approval, MemoryStore, Runtime, Toolbox
from toolwire.errors import ToolFailure
from toolwire.protocol.calls import NeedsApproval, ToolCall
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Grant, Tier
from toolwire.protocol.turns import Turn
from toolwire.testing import MemoryFiles
from toolwire.toolbox import LocalFiles, edit_tool, read_tool, write_tool
from toolwire.toolbox.files.replacing import replace_text

Call = Callable[..., Any]
FILES = LocalFiles(sync=lambda _: None)  # nothing here is about power cuts
WRITE, EDIT, READ = write_tool(FILES), edit_tool(FILES), read_tool(FILES)


@pytest.mark.feature("F248")
def test_what_is_written_is_what_is_read(call: Call, workspace: Path, granted: Context) -> None:
    text = "# Grüße\n\ttab\r\nlast line without an end"
    made = call(WRITE, granted, path="docs/new/a.md", content=text)
    assert made == {
        "path": "docs/new/a.md",
        "created": True,
        "bytes": len(text.encode()),
        "lines": 3,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    assert (workspace / "docs/new/a.md").read_bytes() == text.encode()
    assert call(READ, granted, path="docs/new/a.md")["text"] == text
    again = call(WRITE, granted, path="docs/new/a.md", content="")
    assert (again["created"], again["bytes"], again["lines"]) == (False, 0, 0)


@pytest.mark.feature("F248")
def test_appending_adds_to_the_end_and_makes_the_file_if_there_is_none(
    call: Call, workspace: Path, granted: Context
) -> None:
    for line in ("one\n", "two\n"):
        call(WRITE, granted, path="log.txt", content=line, mode="append")
    assert (workspace / "log.txt").read_text() == "one\ntwo\n"


@pytest.mark.feature("F248")
def test_an_edit_replaces_one_exact_piece_and_shows_the_lines_around_it(
    call: Call, workspace: Path, granted: Context
) -> None:
    (workspace / "a.py").write_text("".join(f"line {number}\n" for number in range(1, 21)))
    made = call(EDIT, granted, path="a.py", old_text="line 10\nline 11\n", new_text="ten\n")
    assert made["replacements"] == 1
    assert made["first_line"] == 10
    assert made["now"].split("\n")[:5] == ["line 7", "line 8", "line 9", "ten", "line 12"]
    assert (workspace / "a.py").read_text().count("\n") == 19


def test_a_piece_that_occurs_more_than_once_is_named_with_its_lines(
    call: Call, workspace: Path, granted: Context
) -> None:
    (workspace / "a.py").write_text("x = 1\ny = 2\nx = 1\n")
    with pytest.raises(ToolFailure, match=r"occurs 2 times in 'a.py', at lines 1, 3") as raised:
        call(EDIT, granted, path="a.py", old_text="x = 1", new_text="x = 3")
    assert "replace_all" in str(raised.value)
    assert raised.value.code is Code.INVALID_PARAMS
    made = call(EDIT, granted, path="a.py", old_text="x = 1", new_text="x = 3", replace_all=True)
    assert made["replacements"] == 2
    assert (workspace / "a.py").read_text() == "x = 3\ny = 2\nx = 3\n"


@pytest.mark.parametrize(
    ("content", "old", "words"),
    [
        ("def f():\n\treturn 1\n", "    return 1\n", "Line 2 differs from it only in white space"),
        ("pass\u200bword\n", "password", "invisible characters"),
        ("one\n", "two", "does not occur"),
        ("", "two", "does not occur"),
    ],
)
def test_a_piece_that_is_not_there_is_answered_with_what_comes_nearest(
    call: Call, workspace: Path, granted: Context, content: str, old: str, words: str
) -> None:
    (workspace / "a.py").write_text(content)
    with pytest.raises(ToolFailure, match=words) as raised:
        call(EDIT, granted, path="a.py", old_text=old, new_text="x")
    assert "exactly as it is" in str(raised.value)
    assert (workspace / "a.py").read_text() == content


def test_windows_line_ends_are_found_and_kept(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    call(EDIT, granted, path="a.txt", old_text="one\ntwo\n", new_text="1\n2\n")
    assert (workspace / "a.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_an_edit_keeps_a_script_executable(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "run.sh").write_text("#!/bin/sh\nexit 1\n")
    (workspace / "run.sh").chmod(0o755)
    call(EDIT, granted, path="run.sh", old_text="exit 1", new_text="exit 0")
    assert (workspace / "run.sh").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        (EDIT, {"path": "missing.txt", "old_text": "a", "new_text": "b"}, Code.NOT_FOUND),
        (EDIT, {"path": "folder", "old_text": "a", "new_text": "b"}, Code.INVALID_PARAMS),
        (EDIT, {"path": "binary", "old_text": "a", "new_text": "b"}, Code.INVALID_PARAMS),
        (EDIT, {"path": "latin", "old_text": "a", "new_text": "b"}, Code.INVALID_PARAMS),
        (EDIT, {"path": "a.txt", "old_text": "text", "new_text": "text"}, Code.INVALID_PARAMS),
        (EDIT, {"path": "a.txt", "old_text": "text", "new_text": "\ud800"}, Code.INVALID_PARAMS),
        (WRITE, {"path": "folder", "content": "x"}, Code.INVALID_PARAMS),
        (WRITE, {"path": "a.txt/b.txt", "content": "x"}, Code.INVALID_PARAMS),
        (WRITE, {"path": "half.txt", "content": "\udfff"}, Code.INVALID_PARAMS),
        (WRITE, {"path": "../b.txt", "content": "x"}, Code.INVALID_PARAMS),
        (WRITE, {"path": "/etc/b.txt", "content": "x"}, Code.PERMISSION_DENIED),
        (WRITE, {"path": "x" * 300, "content": "x"}, Code.INVALID_PARAMS),
        (WRITE, {"path": "evil\u202etxt.exe", "content": "x"}, Code.INVALID_PARAMS),
        (WRITE, {"path": ".bashrc", "content": "x"}, Code.PERMISSION_DENIED),
    ],
)
def test_what_cannot_be_written_is_refused_with_a_sentence_and_changes_nothing(
    workspace: Path, granted: Context, tool: Any, arguments: dict[str, Any], code: Code
) -> None:
    (workspace / "folder").mkdir()
    (workspace / "a.txt").write_text("text")
    (workspace / "binary").write_bytes(b"a\0b")
    (workspace / "latin").write_bytes(b"caf\xe9 a")
    before = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}
    with pytest.raises(ToolFailure) as raised:
        tool(granted, **arguments)
    assert raised.value.code is code
    assert {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}.items() >= before.items()
    assert sorted(path.name for path in workspace.iterdir() if path.name != ".toolwire") == [
        "a.txt",
        "binary",
        "folder",
        "latin",
    ]


def test_a_file_that_changed_after_it_was_looked_at_is_not_overwritten(call: Call, granted: Context) -> None:
    """Someone else writes between the tool's look and its change; the edit is refused, not theirs lost."""

    class Meddled(MemoryFiles):
        def change(self, root: str, changes: Any, *, key: str = "", note: str = "") -> None:
            self.files["a.txt"] = b"theirs"
            super().change(root, changes, key=key, note=note)

    files = Meddled({"a.txt": "ours"}, root=granted.grant.roots[0])
    with pytest.raises(ToolFailure, match="changed by someone else"):
        call(edit_tool(files), granted, path="a.txt", old_text="ours", new_text="new")
    assert files.files["a.txt"] == b"theirs"


@pytest.mark.parametrize("tool", [WRITE, EDIT])
def test_tools_that_change_files_ask_for_run_and_keep_a_journal(tool: Any) -> None:
    assert tool.tier is Tier.RUN
    assert tool.effect is Effect.TRANSACTIONAL
    assert "file_write" in tool.needs


def test_a_second_attempt_of_a_call_that_took_effect_changes_nothing_and_answers_the_same(
    call: Call, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("a")
    grant = Grant(roots=(str(workspace),))
    first = Context("call-1", "turn-1", grant=grant, attempt=1)
    again = Context("call-1", "turn-1", grant=grant, attempt=2)
    said = call(EDIT, first, path="a.txt", old_text="a", new_text="aa")
    assert call(EDIT, again, path="a.txt", old_text="a", new_text="aa") == said
    assert (workspace / "a.txt").read_text() == "aa"
    assert call(WRITE, first, path="log", content="x", mode="append")["bytes"] == 1
    other = Context("call-2", "turn-1", grant=grant, attempt=2)
    assert call(WRITE, other, path="log", content="x", mode="append")["bytes"] == 2


def test_the_first_of_several_granted_folders_takes_new_files_and_each_keeps_its_own(
    call: Call, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "old.txt").write_text("old")
    context = Context(grant=Grant(roots=(str(tmp_path / "a"), str(tmp_path / "b"))))
    call(WRITE, context, path="new.txt", content="new")
    call(WRITE, context, path="old.txt", content="changed")
    call(WRITE, context, path=str(tmp_path / "b" / "third.txt"), content="third")
    assert (tmp_path / "a" / "new.txt").read_text() == "new"
    assert (tmp_path / "b" / "old.txt").read_text() == "changed"
    assert (tmp_path / "b" / "third.txt").read_text() == "third"


def test_replacing_is_exact_for_every_kind_of_text() -> None:
    assert replace_text("f", "a.b", ".", "x").text == "axb"
    assert replace_text("f", "aaa", "a", "b", replace_all=True)[:3] == ("bbb", 3, 1)
    assert replace_text("f", "\n\nend", "end", "").first_line == 3


@pytest.mark.parametrize("granted_by_a_person", [True, False])
async def test_a_person_is_asked_before_a_file_is_changed(workspace: Path, granted_by_a_person: bool) -> None:
    asked: list[dict[str, Any]] = []

    async def approve(request: NeedsApproval) -> Approval:
        asked.append(dict(request.allowed.arguments))
        return Approval(granted=granted_by_a_person)

    runtime = Runtime(Toolbox(WRITE), MemoryStore(), approve=approve)
    arguments = {"path": "a.txt", "content": "x"}
    for tier, permissions in ((Tier.WALK, {"file_write"}), (Tier.RUN, {"file_read"}), (Tier.RUN, {"file_write"})):
        turn = Turn(f"{tier}-{permissions}", grant=Grant(tier, frozenset(permissions), (str(workspace),)))
        result = await runtime.execute(ToolCall("write", arguments, id="c"), turn)
    assert [one["path"] for one in asked] == ["a.txt"]
    assert result.ok is granted_by_a_person
    assert (workspace / "a.txt").exists() is granted_by_a_person
