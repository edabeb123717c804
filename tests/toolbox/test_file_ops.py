"""What every FileOps promises, on the disk and in memory; and what only a disk can show: crashes, links, rights."""

import hashlib
import os
import textwrap
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import forked
from toolwire.protocol.files import Change, FileOps, NotAFile, Protected, Stale
from toolwire.testing import MemoryFiles
from toolwire.toolbox import LocalFiles
from toolwire.toolbox.remote_files.client import RemoteFiles
from toolwire.toolbox.remote_files.server import answer

Make = Callable[[dict[str, str]], tuple[FileOps, str]]


@pytest.fixture(params=["disk", "memory", "far"])
def make(request: pytest.FixtureRequest, workspace: Path) -> Make:
    def on_disk(files: dict[str, str]) -> tuple[FileOps, str]:
        for path, text in files.items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_text(text)
        return LocalFiles(), str(workspace)

    def in_memory(files: dict[str, str]) -> tuple[FileOps, str]:
        return MemoryFiles(files), "/workspace"

    def far_away(files: dict[str, str]) -> tuple[FileOps, str]:
        near, root = on_disk(files)
        return RemoteFiles(partial(answer, near, [root])), root

    return {"disk": on_disk, "memory": in_memory, "far": far_away}[request.param]


def text(files: FileOps, root: str, path: str) -> str:
    with files.open(root, path) as file:
        return file.read().decode()


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


@pytest.mark.feature("F062")
def test_a_file_is_read_listed_and_described_the_same_everywhere(make: Make) -> None:
    files, root = make({"a.txt": "one", "src/b.txt": "two", "src/deep/c.txt": "three"})
    assert text(files, root, "src/b.txt") == "two"
    assert [
        (entry.name, entry.kind, entry.size) for entry in files.entries(root, "src", 10) if entry.kind == "file"
    ] == [("b.txt", "file", 3)]
    assert [entry.name for entry in files.entries(root, ".", 10)] == ["a.txt", "src"]
    assert len(files.entries(root, ".", 1)) == 1
    assert (files.stat(root, "a.txt").kind, files.stat(root, "a.txt").size) == ("file", 3)
    assert files.stat(root, "src").kind == files.stat(root, ".").kind == "folder"


@pytest.mark.feature("F062")
def test_several_files_change_together_and_folders_are_made(make: Make) -> None:
    files, root = make({"a.txt": "one", "b.txt": "two"})
    changes = [Change("a.txt", b"new"), Change("b.txt", None), Change("new/folder/c.txt", b"three")]
    files.change(root, changes, key="turn/call", note="kept")
    assert text(files, root, "a.txt") == "new"
    assert text(files, root, "new/folder/c.txt") == "three"
    with pytest.raises(FileNotFoundError):
        files.stat(root, "b.txt")
    assert files.note(root, "turn/call") == "kept"
    assert files.note(root, "turn/other") is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Change("b.txt", b"x", before=digest("not this")), Stale),
        (Change("b.txt", b"x", before=""), FileExistsError),
        (Change("missing.txt", b"x", before=digest("two")), Stale),
        (Change("missing.txt", None), FileNotFoundError),
        (Change("folder", b"x"), IsADirectoryError),
        (Change("b.txt/inner.txt", b"x"), NotADirectoryError),
        (Change(".git/hooks/pre-commit", b"x"), Protected),
        (Change("../outside.txt", b"x"), OSError),
        (Change("/etc/passwd", b"x"), OSError),
        (Change("a\0b", b"x"), OSError),
        (Change("a\x1b[2Jb", b"x"), OSError),
        (Change("a.txt", b"twice"), OSError),
        (Change("./a.txt", b"twice"), OSError),
        (Change(".", b"x"), OSError),
    ],
)
def test_one_bad_change_leaves_everything_as_it_was(make: Make, change: Change, error: type[Exception]) -> None:
    files, root = make({"a.txt": "one", "b.txt": "two", "folder/c.txt": "three"})
    with pytest.raises(error):
        files.change(root, [Change("a.txt", b"changed"), Change("new/d.txt", b"made"), change], key="k", note="n")
    assert text(files, root, "a.txt") == "one"
    assert text(files, root, "b.txt") == "two"
    with pytest.raises(FileNotFoundError):
        files.stat(root, "new")
    assert files.note(root, "k") is None


def test_what_is_missing_or_of_another_kind_is_said_by_the_same_errors(make: Make) -> None:
    files, root = make({"a.txt": "one", "src/b.txt": "two"})
    for path, error in (("missing", FileNotFoundError), ("src", IsADirectoryError), ("..", OSError)):
        with pytest.raises(error):
            files.open(root, path)
    with pytest.raises(NotADirectoryError):
        files.entries(root, "a.txt", 10)
    with pytest.raises(FileNotFoundError):
        files.entries(root, "missing", 10)
    for path in ("..", "../x", "/etc"):
        with pytest.raises(OSError):
            files.stat(root, path)


def test_our_own_state_is_neither_shown_nor_read_nor_written(workspace: Path) -> None:
    files, root = LocalFiles(), str(workspace)
    files.change(root, [Change("a.txt", b"one")], key="k", note="n")
    assert (workspace / ".toolwire").is_dir()
    (workspace / "link").symlink_to(".toolwire")
    assert [entry.name for entry in files.entries(root, ".", 10)] == ["a.txt", "link"]
    for path in (".toolwire/.gitignore", "link/.gitignore", ".TOOLWIRE/.gitignore", ".toolwire./.gitignore"):
        with pytest.raises(OSError):
            files.open(root, path)
        with pytest.raises(OSError):
            files.change(root, [Change(path, b"x")])
    for path in (".toolwire", "link", "link/changes"):
        with pytest.raises(OSError):
            files.entries(root, path, 10)
    assert (workspace / ".toolwire/.gitignore").read_text() == "*\n"


def test_nothing_is_left_beside_the_files_after_a_change(workspace: Path) -> None:
    files = LocalFiles()
    (workspace / "a.txt").write_text("one")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(3):
        files.change(str(workspace), [Change("a.txt", b"two"), Change(f"new{number}.txt", b"x")])
    with pytest.raises(Stale):
        files.change(str(workspace), [Change("a.txt", b"three", before=digest("other"))])
    left = sorted(path.name for path in (workspace / ".toolwire/changes").iterdir())
    assert left == ["done", "lock"]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_new_file_is_not_executable_and_an_edited_one_keeps_its_mode(workspace: Path) -> None:
    files, root = LocalFiles(), str(workspace)
    (workspace / "run.sh").write_text("#!/bin/sh\n")
    (workspace / "run.sh").chmod(0o4755)
    files.change(root, [Change("run.sh", b"#!/bin/sh\ntrue\n", keep_mode=True), Change("new.sh", b"")])
    assert (workspace / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (workspace / "new.sh").stat().st_mode & 0o7777 == 0o644
    files.change(root, [Change("run.sh", b"rewritten")])
    assert (workspace / "run.sh").stat().st_mode & 0o7777 == 0o644


CRASHING = """
import os, sys
from toolwire.protocol.files import Change
from toolwire.toolbox import LocalFiles
from toolwire.toolbox.remote_files.server import answer
from toolwire.toolbox.remote_files.client import RemoteFiles

left = int(sys.argv[2])

def sync(descriptor):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    os.fsync(descriptor)

changes = [Change("a.txt", b"new a"), Change("b.txt", None), Change("made/c.txt", b"new c"), Change("d.txt", b"new d")]
LocalFiles(sync).change(sys.argv[1], changes, key="turn/call", note="it happened")
"""


def tree(workspace: Path) -> dict[str, str]:
    return {
        path.relative_to(workspace).as_posix(): path.read_text()
        for path in workspace.rglob("*")
        if path.is_file() and ".toolwire" not in path.parts
    }


@pytest.mark.feature("F257")
def test_a_process_that_dies_at_any_moment_leaves_the_old_files_or_the_new_ones(workspace: Path) -> None:
    """We chose to bring everything to the disk in steps; the process is killed before each of them."""
    old = {"a.txt": "old a", "b.txt": "old b", "d.txt": "old d"}
    new = {"a.txt": "new a", "made/c.txt": "new c", "d.txt": "new d"}
    seen = []
    for steps in range(40):
        root = workspace / str(steps)
        root.mkdir()
        for name, content in old.items():
            (root / name).write_text(content)
        died = forked.run_python("-c", textwrap.dedent(CRASHING), str(root), str(steps)).returncode
        note = LocalFiles().note(str(root), "turn/call")
        assert (tree(root), note) in [(old, None), (new, "it happened")]
        seen.append((died, note))
        if died == 0:
            break
    assert seen[0] == (9, None)
    assert (9, "it happened") in seen
    assert seen[-1] == (0, "it happened")


def test_reading_settles_nothing_and_the_next_write_finishes_a_half_made_change(workspace: Path) -> None:
    """The control of the test above: right after the crash the tree is a mixture, and a reader finds it so."""
    mixtures = 0
    for steps in range(3, 12):
        root = workspace / str(steps)
        root.mkdir()
        for name in ("a.txt", "b.txt", "d.txt"):
            (root / name).write_text(f"old {name[0]}")
        forked.run_python("-c", textwrap.dedent(CRASHING), str(root), str(steps))
        before = whole(root)
        found = set(tree(root).values())
        mixtures += bool(found & {"new a", "new c", "new d"} and found & {"old a", "old b", "old d"})
        files = LocalFiles()
        [entry] = [entry for entry in files.entries(str(root), ".", 10) if entry.name == "a.txt"]
        assert text(files, str(root), "a.txt") in {"old a", "new a"}
        assert (entry.size, files.stat(str(root), "a.txt").size, whole(root)) == (5, 5, before)
        files.change(str(root), [Change("next.txt", b"next")])
        assert set(tree(root).values()) - {"next"} in ({"old a", "old b", "old d"}, {"new a", "new c", "new d"})
    assert mixtures > 0


def whole(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its number and content, those of the journal too."""
    return {str(path): (path.stat().st_ino, path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def test_writers_in_many_threads_lose_nothing(workspace: Path) -> None:
    files, root = LocalFiles(), str(workspace)
    (workspace / "count").write_text("0")

    def count_up() -> None:
        done = 0
        while done < 10:
            now = (workspace / "count").read_text()
            try:
                files.change(root, [Change("count", str(int(now) + 1).encode(), before=digest(now))])
            except Stale:
                continue
            done += 1

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (workspace / "count").read_text() == "40"


def test_a_forged_plan_cannot_write_what_a_tool_may_not(workspace: Path, tmp_path: Path) -> None:
    files, root = LocalFiles(), str(workspace)
    files.change(root, [Change("a.txt", b"one")])
    folder = workspace / ".toolwire/changes"
    for path in (".git/hooks/pre-commit", "../outside", "link/x"):
        (workspace / "link").unlink(missing_ok=True)
        (workspace / "link").symlink_to(tmp_path)
        (folder / "new-0").write_text("evil")
        inode = (folder / "new-0").stat().st_ino
        swap = f'{{"path": "{path}", "action": "create", "slot": "new-0", "inode": {inode}, "seen": []}}'
        (folder / "plan").write_text(f'{{"swaps": [{swap}], "folders": [], "key": "k", "note": "n"}}')
        assert files.note(root, "k") is None
    for broken in ("", "{", "[]", '{"swaps": 3}', '{"swaps": [{}]}', "[" * 100_000):
        (folder / "plan").write_text(broken)
        assert files.note(root, "k") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["workspace"]
    assert not (workspace / ".git").exists()


def test_devices_pipes_and_links_are_never_written_to(workspace: Path, tmp_path: Path) -> None:
    files, root = LocalFiles(), str(workspace)
    os.mkfifo(workspace / "pipe")
    (tmp_path / "target").write_text("old")
    (workspace / "link").symlink_to("../target")
    (workspace / "inside").symlink_to("folder")
    (workspace / "folder").mkdir()
    for path, error in (("pipe", NotAFile), ("link", OSError), ("inside/x", OSError)):
        with pytest.raises(error):
            files.change(root, [Change(path, b"new")])
    assert (tmp_path / "target").read_text() == "old"


PATHS = st.sampled_from(["a", "b", "d", "d/a", "d/e/f", "a/b", "./b", "d//a", "..", ".git/x", ""])
CHANGES = st.builds(
    Change,
    path=PATHS,
    content=st.sampled_from([b"", b"one", b"two", None]),
    before=st.sampled_from([None, None, "", digest("one"), digest("two")]),
    keep_mode=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.lists(CHANGES, min_size=1, max_size=3), max_size=6))
def test_a_disk_does_whatever_is_asked_exactly_as_the_model_of_it_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[Change]]
) -> None:
    root = tmp_path_factory.mktemp("disk")
    disk, memory = LocalFiles(sync=lambda _: None), MemoryFiles(root=str(root))
    for number, changes in enumerate(steps):
        outcomes = []
        for files in (disk, memory):
            try:
                files.change(str(root), changes, key=str(number), note="done")
            except OSError:
                outcomes.append("refused")
            else:
                outcomes.append("done")
        assert outcomes[0] == outcomes[1], changes
        assert tree(root) == {path: body.decode() for path, body in memory.files.items()}
        assert disk.note(str(root), str(number)) == memory.note(str(root), str(number))
