"""Reading files: only inside the granted folders, only text, only as much as was asked for."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Grant
from toolwire.testing import MemoryFiles
from toolwire.toolbox import LocalFiles, read_tool
from toolwire.toolbox.disk.beneath import walk

Call = Callable[..., Any]
READ = read_tool(LocalFiles())


def failure(context: Context, path: str, offset: int = 1) -> ToolFailure:
    """How the function itself refuses, even where the schema would have refused before it."""
    with pytest.raises(ToolFailure) as raised:
        READ(context, path, offset)
    return raised.value


def test_a_whole_file_is_read_with_its_line_numbers(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_text("one\ntwo\nthree")
    assert call(READ, granted, path="a.txt") == {
        "path": "a.txt",
        "text": "one\ntwo\nthree",
        "first_line": 1,
        "last_line": 3,
        "total_lines": 3,
        "truncated": False,
        "note": "",
    }


def test_a_part_of_a_file_says_how_to_go_on(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 50_001)))
    part = call(READ, granted, path="a.txt", offset=30_000, limit=2)
    assert part["text"] == "line 30000\nline 30001\n"
    assert (part["first_line"], part["last_line"], part["total_lines"]) == (30_000, 30_001, 50_000)
    assert part["truncated"]
    assert "offset=30002" in part["note"]

    rest = call(READ, granted, path="a.txt", offset=49_999)
    assert rest["text"] == "line 49999\nline 50000\n"
    assert not rest["truncated"]


@pytest.mark.parametrize(
    ("content", "offset", "lines"), [(b"", 2, 0), (b"a\n", 2, 1), (b"a\nb", 3, 2), (b"a\n" * 90_000, 90_001, 90_000)]
)
def test_an_offset_past_the_end_is_told_with_the_number_of_lines(
    workspace: Path, granted: Context, content: bytes, offset: int, lines: int
) -> None:
    (workspace / "a.txt").write_bytes(content)
    assert f"has only {lines} lines" in str(failure(granted, "a.txt", offset=offset))


def test_an_empty_file_has_no_lines(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").touch()
    part = call(READ, granted, path="a.txt")
    assert (part["text"], part["last_line"], part["total_lines"], part["truncated"]) == ("", 0, 0, False)


def test_a_very_long_line_is_cut_with_a_mark(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_text("é" * 200_000 + "\nshort\n")
    part = call(READ, granted, path="a.txt")
    long, short, _ = part["text"].split("\n")
    assert long.startswith("é" * 1000)
    assert long.endswith("[cut: 396000 more bytes in this line]")
    assert len(long) < 5000
    assert short == "short"
    assert part["truncated"]
    assert part["note"] == "Line 1 was cut."


def test_a_huge_file_gives_a_bounded_text(call: Call, workspace: Path, granted: Context) -> None:
    with (workspace / "a.txt").open("wb") as file:
        for _ in range(400):
            file.write(b"x" * 99 + b"\n" + b"y" * 99_899 + b"\n")
    part = call(READ, granted, path="a.txt", limit=10_000)
    assert len(part["text"]) < 300_000
    assert part["truncated"]
    assert part["total_lines"] is None


def test_bytes_that_are_not_utf8_are_marked_and_said(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_bytes(b"caf\xe9\nok\n")
    part = call(READ, granted, path="a.txt")
    assert part["text"] == "caf\ufffd\nok\n"
    assert "not UTF-8" in part["note"]


def test_a_byte_order_mark_is_not_part_of_the_text(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_bytes(b"\xef\xbb\xbfone\n")
    assert call(READ, granted, path="a.txt")["text"] == "one\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0", "binary file"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"text\n" * 30_000 + b"\0\0\n", "binary data"),
    ],
)
def test_a_binary_file_is_named_as_such_and_not_dumped(
    workspace: Path, granted: Context, content: bytes, words: str
) -> None:
    (workspace / "a.bin").write_bytes(content)
    said = failure(granted, "a.bin", offset=1 if len(content) < 100 else 30_000)
    assert words in str(said)
    assert said.code is Code.INVALID_PARAMS


@pytest.fixture
def outside(tmp_path: Path, workspace: Path) -> Path:
    """A secret beside the workspace, and links in the workspace that lead to it."""
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "workspace-twin").mkdir()
    (tmp_path / "workspace-twin" / "secret.txt").write_text("SECRET")
    (workspace / "in").mkdir()
    (workspace / "link").symlink_to("../secret.txt")
    (workspace / "absolute").symlink_to(tmp_path / "secret.txt")
    (workspace / "folder").symlink_to(tmp_path)
    (workspace / "chain").symlink_to("folder")
    (workspace / "magic").symlink_to("/proc/self/root")
    (workspace / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("path", ["in/../a.txt", "./in/../in/../a.txt", "link/../a.txt", "{workspace}/in/../a.txt"])
def test_a_path_with_detours_that_stay_inside_is_read(
    call: Call, granted: Context, outside: Path, workspace: Path, path: str
) -> None:
    """We chose names over links: behind a link that leads out, `..` still leads to where the link lies."""
    assert outside == workspace.parent
    (workspace / "a.txt").write_text("here\n")

    assert call(READ, granted, path=path.replace("{workspace}", str(workspace)))["text"] == "here\n"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "in/../../secret.txt",
        "./../secret.txt",
        "in/./..//../secret.txt",
        "..",
        "/etc/passwd",
        "//etc/passwd",
        "{outside}/secret.txt",
        "{outside}/workspace/../secret.txt",
        "{outside}/workspace-twin/secret.txt",
        "link",
        "absolute",
        "folder/secret.txt",
        "chain/secret.txt",
        "magic{outside}/secret.txt",
        "magic/etc/passwd",
        "loop",
        "secret.txt",
        "%2e%2e/secret.txt",
        "..\\secret.txt",
        "~/secret.txt",
        "a.txt\0../../secret.txt",
        "in\n../secret.txt",
        "\ud800",
        "x" * 4000,
        "d/" * 2000,
    ],
)
def test_no_path_leads_out_of_the_workspace(granted: Context, outside: Path, path: str) -> None:
    said = failure(granted, path.replace("{outside}", str(outside)))
    assert said.code in {Code.NOT_FOUND, Code.PERMISSION_DENIED, Code.INVALID_PARAMS}
    assert "SECRET" not in str(said)


def test_links_and_absolute_paths_that_stay_inside_are_fine(call: Call, workspace: Path, granted: Context) -> None:
    """The kernel's own resolution allows such links; the portable walk refuses every link."""
    (workspace / "real").mkdir()
    (workspace / "real" / "a.txt").write_text("inside")
    (workspace / "link").symlink_to("real")
    assert call(READ, granted, path="link/a.txt")["text"] == "inside"
    assert call(READ, granted, path=str(workspace / "real" / "a.txt"))["text"] == "inside"


def test_without_a_granted_folder_nothing_is_read(workspace: Path) -> None:
    (workspace / "a.txt").write_text("text")
    said = failure(Context(), str(workspace / "a.txt"))
    assert said.code is Code.PERMISSION_DENIED
    assert "no folder is granted" in str(said)


def test_several_granted_folders_are_searched_in_order(call: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(name)
    context = Context(grant=Grant(roots=(str(tmp_path / "a"), str(tmp_path / "b"))))
    assert call(READ, context, path="b.txt")["text"] == "b"
    assert call(READ, context, path=str(tmp_path / "a" / "a.txt"))["text"] == "a"


def test_a_pipe_or_device_is_refused_without_waiting(workspace: Path, granted: Context) -> None:
    os.mkfifo(workspace / "pipe")
    assert "not a file" in str(failure(granted, "pipe"))
    assert "not a file" in str(failure(Context(grant=Grant(roots=("/dev",))), "zero"))


def test_a_folder_is_answered_with_what_it_holds(workspace: Path, granted: Context) -> None:
    (workspace / "src").mkdir()
    for number in range(30):
        (workspace / "src" / f"{number:02}.py").touch()
    said = str(failure(granted, "src"))
    assert "is a folder" in said
    assert "00.py, 01.py" in said
    assert "and 10 more" in said
    assert "is a folder" in str(failure(granted, "."))


def test_a_missing_file_is_answered_with_the_nearest_name(workspace: Path, granted: Context) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "settings.md").touch()
    said = failure(granted, "docs/setings.md")
    assert said.code is Code.NOT_FOUND
    assert "did you mean docs/settings.md?" in str(said)
    assert failure(granted, "nowhere/x.md").code is Code.NOT_FOUND
    assert failure(granted, "docs/settings.md/x").code is Code.NOT_FOUND


def test_a_tool_reads_through_whatever_files_it_was_given(call: Call) -> None:
    context = Context(grant=Grant(roots=("/device",)))
    device = MemoryFiles({"log.txt": "one\ntwo\n"}, root="/device")
    assert call(read_tool(device), context, path="log.txt", offset=2)["text"] == "two\n"


def read_by_kernel(workspace: Path) -> str:
    with LocalFiles().open(str(workspace), "place/a.txt") as file:
        return file.read().decode()


def read_by_walking(workspace: Path) -> str:
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open(walk(folder, "place/a.txt", os.O_RDONLY), "rb") as file:  # noqa: PTH123
            return file.read().decode()
    finally:
        os.close(folder)


@pytest.mark.parametrize("read", [read_by_kernel, read_by_walking])
def test_swapping_a_folder_for_a_link_never_leads_out(
    tmp_path: Path, workspace: Path, read: Callable[[Path], str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("SECRET")
    (workspace / "place").mkdir()
    (workspace / "place" / "a.txt").write_text("inside")
    (workspace / "trap").symlink_to(tmp_path / "elsewhere")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (workspace / "place").rename(workspace / "kept")
            (workspace / "trap").rename(workspace / "place")
            (workspace / "place").rename(workspace / "trap")
            (workspace / "kept").rename(workspace / "place")

    attacker = threading.Thread(target=swap)
    attacker.start()
    seen: set[str] = set()
    try:
        for tries in range(300_000):  # at least 3000, and as many more as a busy machine needs to see one in between
            if tries >= 3000 and "inside" in seen:
                break
            try:
                seen.add(read(workspace))
            except OSError as error:
                seen.add(type(error).__name__)
    finally:
        done.set()
        attacker.join()
    assert "SECRET" not in seen
    assert "inside" in seen


def test_the_walk_refuses_steps_upward_links_and_nothing_else(tmp_path: Path, workspace: Path) -> None:
    (workspace / "a").mkdir()
    (workspace / "a" / "b.txt").write_text("text")
    (workspace / "link").symlink_to("a")
    folder = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(walk(folder, "a/./b.txt", os.O_RDONLY))
        for path in ("../x", "/etc/passwd", "a/../../x", "link/b.txt", "link"):
            with pytest.raises(OSError):
                walk(folder, path, os.O_RDONLY)
    finally:
        os.close(folder)


def test_no_descriptor_is_left_open(call: Call, workspace: Path, granted: Context, outside: Path) -> None:
    (workspace / "a.txt").write_text("text")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("a.txt", "in", "link", "missing", "magic/etc", "loop"):
        try:
            call(READ, granted, path=path)
        except ToolFailure:
            continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before
