"""Attacks on files, each with a control that shows that the attack is one."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.race_paths import Tally, race

from tests.toolbox.hostile_paths import PATHS
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.files import FileEntry
from toolwire.protocol.tools import Grant, Tool
from toolwire.testing import MemoryFiles
from toolwire.toolbox import (
    LocalFiles,
    apply_patch_tool,
    coding,
    edit_tool,
    find_tool,
    glob_tool,
    grep_tool,
    read_tool,
    write_tool,
)
from toolwire.toolbox.files.patterns import Pattern
from toolwire.toolbox.files.tree import MOST_ENTRIES

Call = Callable[..., Any]
FILES = LocalFiles(sync=lambda _: None)  # nothing here is about power cuts
TOOLS = {tool.name: tool for tool in coding(FILES)}
SECRET = "TOP-SECRET"


@pytest.fixture
def outside(tmp_path: Path, workspace: Path) -> Path:
    """Secrets beside the workspace, and links in the workspace that lead to them."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "workspace-twin").mkdir()
    (tmp_path / "workspace-twin" / "secret.txt").write_text(SECRET)
    (workspace / "in").mkdir()
    (workspace / "a.txt").write_text("inside")
    for name, target in {
        "link": "../secret.txt",
        "absolute": str(tmp_path / "secret.txt"),
        "folder-link": str(tmp_path),
        "chain": "folder-link",
        "magic": "/proc/self/root",
        "cwd": "/proc/self/cwd",
        "fd": "/proc/self/fd",
        "loop": "loop",
        "up": "..",
        "in/up": "../..",
        "dangling": "../new.txt",
    }.items():
        (workspace / name).symlink_to(target)
    return tmp_path


def time_source(outside: Path) -> dict[str, bytes]:
    """Everything outside of the workspace."""
    return {
        str(path): path.read_bytes()
        for path in outside.rglob("*")
        if path.is_file() and "workspace/" not in f"{path.relative_to(outside)}/"
    }


def attempts(path: str) -> Iterator[tuple[Tool, dict[str, Any]]]:
    patch = f"*** Begin Patch\n*** Add File: {path}\n+evil\n*** End Patch"
    for name, arguments in {
        "read": {"path": path},
        "stat": {"path": path},
        "list": {"path": path},
        "glob": {"pattern": "*", "path": path},
        "grep": {"pattern": "SECRET", "path": path},
        "find": {"pattern": "secret", "path": path},
        "image": {"path": path},
        "write": {"path": path, "content": "evil"},
        "edit": {"path": path, "old_text": SECRET, "new_text": "evil"},
        "apply_patch": {"patch": patch},
    }.items():
        yield TOOLS[name], arguments


@pytest.mark.feature("F121")
@pytest.mark.feature("F122")
@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_T20_no_path_reaches_anything_outside_of_the_workspace(outside: Path, workspace: Path, path: str) -> None:
    path = path.replace("{outside}", str(outside))
    before = time_source(outside)
    context = Context(grant=Grant(roots=(str(workspace),)))
    for tool, arguments in attempts(path):
        try:
            said = repr(tool(context, **arguments))
        except ToolFailure as failure:
            said = str(failure)
        assert SECRET not in said, tool.name
        assert "root:" not in said, tool.name
    assert time_source(outside) == before


@pytest.mark.control("T20")
def test_T20_the_corpus_is_large_and_the_naive_way_falls_for_it(outside: Path, workspace: Path) -> None:
    """The control: joining and opening, as most tools do, reaches the secret by many of these paths."""
    assert len(PATHS) >= 200
    reached = 0
    for path in PATHS:
        try:
            place = workspace / path.replace("{outside}", str(outside))
            reached += place.is_file() and SECRET in place.read_text()
        except (OSError, ValueError):
            continue
    assert reached >= 10


@pytest.mark.parametrize("way", ["read", "write"])
def test_T21_swapping_a_folder_for_a_link_never_leads_out(way: str) -> None:
    """The same for a minute: `make race`."""
    tally = race(way, lambda so_far: so_far.tries < 2000 or so_far.inside == 0)
    assert tally.escapes == 0
    assert tally.inside > 0


@pytest.mark.control("T21")
def test_T21_checking_before_opening_does_lead_out() -> None:
    """The control: the attack works against a check that is made before the file is opened."""

    def until_it_escapes(so_far: Tally) -> bool:
        return so_far.escapes == 0 and so_far.tries < 1_000_000

    assert race("naive read", until_it_escapes).escapes > 0


def test_T22_pipes_sockets_and_devices_are_refused_without_waiting(workspace: Path, granted: Context) -> None:
    os.mkfifo(workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(workspace)
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        for name in ("pipe", "socket"):
            for tool, arguments in attempts(name):
                if tool.name in {"stat", "glob", "find", "grep"}:
                    continue
                with pytest.raises(ToolFailure):
                    tool(granted, **arguments)
        assert TOOLS["grep"](granted, "x")["files_searched"] == 0
    for name in ("zero", "full", "tty", "random"):
        with pytest.raises(ToolFailure, match=r"not a file|leads out|cannot be read|no file"):
            TOOLS["read"](Context(grant=Grant(roots=("/dev",))), name)


@pytest.mark.control("T22")
def test_T22_the_naive_way_would_read_a_device_for_ever() -> None:
    """The control: opened like any file, a device never ends."""
    with Path("/dev/zero").open("rb") as device:
        assert len(device.read(1 << 20)) == 1 << 20


def test_T22_writing_to_a_hard_link_leaves_the_other_name_as_it_was(
    call: Call, tmp_path: Path, workspace: Path, granted: Context
) -> None:
    (tmp_path / "outside.txt").write_text("theirs")
    for name in ("one", "two", "three", "control"):
        (workspace / name).hardlink_to(tmp_path / "outside.txt")
    call(write_tool(FILES), granted, path="one", content="mine")
    call(edit_tool(FILES), granted, path="two", old_text="theirs", new_text="mine")
    patch = "--- a/three\n+++ b/three\n@@ -1 +1 @@\n-theirs\n\\ No newline at end of file\n+mine\n"
    call(apply_patch_tool(FILES), granted, patch=patch)
    assert (tmp_path / "outside.txt").read_text() == "theirs"
    (workspace / "control").write_text("mine")
    assert (tmp_path / "outside.txt").read_text() == "mine"


PROTECTED = """
.git/hooks/pre-commit .git/config .git/HEAD .git/info/attributes .gitmodules sub/.git/config .git
.bashrc .bash_profile .profile .zshrc .zshenv .config/../.bashrc home/.bashrc .envrc .npmrc .netrc
.toolwire/settings.json toolwire.toml sub/toolwire.toml .toolwire .mcp.json .claude/settings.json .cursor/rules
.github/workflows/ci.yml .gitlab-ci.yml .circleci/config.yml Jenkinsfile azure-pipelines.yml .travis.yml
.vscode/tasks.json .idea/workspace.xml .devcontainer/devcontainer.json .vimrc .exrc .husky/pre-commit
.pre-commit-config.yaml sitecustomize.py .ssh/authorized_keys .local/state/toolwire/trusted/abc .local/bin/ls
.config/toolwire/skills/s/skill.toml .config/autostart/x.desktop .config/systemd/user/x.service
""".split()
SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in capitals": str.upper,
    "with a trailing dot": lambda path: re.sub(r"(?=/|$)", ".", path, count=1),
    "with a trailing space": lambda path: re.sub(r"(?=/|$)", " ", path, count=1),
    "with a slash more": lambda path: f".//{path}",
    "with an invisible character": lambda path: path[:2] + "\u200c" + path[2:],
    "in wide letters": lambda path: "".join(chr(ord(c) + 0xFEE0) if c.isalpha() and c.isascii() else c for c in path),
    "with a stream": lambda path: re.sub(r"(?=/|$)", "::$DATA", path, count=1),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("path", PROTECTED)
def test_T23_names_that_others_obey_are_never_written_however_they_are_spelled(
    workspace: Path, granted: Context, path: str, spelling: str
) -> None:
    """They do not exist yet: refusing only what is there would let them be made."""
    if ".." in path and spelling != "as it is":
        path = path.replace(".config/../", "")
    spelled = SPELLINGS[spelling](path)
    (workspace / "plain").write_text("evil")
    add = f"*** Begin Patch\n*** Add File: {spelled}\n+evil\n*** End Patch"
    move = f"*** Begin Patch\n*** Update File: plain\n*** Move to: {spelled}\n*** End Patch"
    for tool, arguments in (
        (TOOLS["write"], {"path": spelled, "content": "evil"}),
        (TOOLS["write"], {"path": str(workspace / spelled), "content": "evil"}),
        (TOOLS["apply_patch"], {"patch": add}),
        (TOOLS["apply_patch"], {"patch": move}),
    ):
        with pytest.raises(ToolFailure):
            tool(granted, **arguments)
    assert sorted(one.name for one in workspace.iterdir() if one.name != ".toolwire") == ["plain"]


def test_T23_a_protected_folder_is_not_reached_by_another_name(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / ".git/hooks").mkdir(parents=True)
    (workspace / "alias").symlink_to(".git")
    (workspace / ".git/config").write_text("[core]")
    (workspace / "hard").hardlink_to(workspace / ".git/config")
    with pytest.raises(ToolFailure, match="link"):
        call(TOOLS["write"], granted, path="alias/hooks/pre-commit", content="evil")
    with pytest.raises(ToolFailure, match="protected"):
        call(TOOLS["edit"], granted, path=".git/config", old_text="[core]", new_text="[evil]")
    call(TOOLS["write"], granted, path="hard", content="evil")
    assert (workspace / ".git/config").read_text() == "[core]"
    assert list((workspace / ".git/hooks").iterdir()) == []
    (workspace / "alias/hooks/pre-commit").write_text("evil")
    assert (workspace / ".git/hooks/pre-commit").exists(), "the control: the plain way follows the link"


def test_T23_ordinary_names_are_written(call: Call, workspace: Path, granted: Context) -> None:
    """The control: what is refused is refused for its name."""
    for path in (".gitignore", ".gitattributes", "src/git/config", "github/ci.yml", "bashrc", ".env.example", "a.toml"):
        assert call(TOOLS["write"], granted, path=path, content="fine")["created"]


BAD_PATCHES = {
    "upward": "--- /dev/null\n+++ b/../../x\n@@ -0,0 +1 @@\n+evil\n",
    "upward in the middle": "--- /dev/null\n+++ b/a/../../x\n@@ -0,0 +1 @@\n+evil\n",
    "absolute": "--- /dev/null\n+++ /tmp/toolwire-evil\n@@ -0,0 +1 @@\n+evil\n",
    "through a link": "--- /dev/null\n+++ b/out/x\n@@ -0,0 +1 @@\n+evil\n",
    "onto a link": "--- a/file-out\n+++ b/file-out\n@@ -1 +1 @@\n-theirs\n+evil\n",
    "makes a link": "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n",
    "makes a submodule": "diff --git a/l b/l\nnew file mode 160000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n",
    "a protected name": "--- /dev/null\n+++ b/.git/hooks/post-checkout\n@@ -0,0 +1 @@\n+evil\n",
    "deletes outside": "--- a/../outside.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-theirs\n",
    "renames outward": "diff --git a/a.txt b/x\nrename from a.txt\nrename to ../x\n",
    "renames inward": "diff --git a/a.txt b/x\nrename from ../outside.txt\nrename to mine.txt\n",
    "an escape in a name": "--- /dev/null\n+++ b/a\x1b]0;evil\x07b\n@@ -0,0 +1 @@\n+evil\n",
    "too many files": "".join(f"--- /dev/null\n+++ b/f{n}\n@@ -0,0 +1 @@\n+x\n" for n in range(10_000)),
    "too many hunks": "--- a/a.txt\n+++ b/a.txt\n" + "@@ -1 +1 @@\n-one\n+two\n" * 100_000,
    "a hunk of a billion lines": "--- a/a.txt\n+++ b/a.txt\n@@ -1,999999999 +1 @@\n-one\n+two\n",
    "one folder as a file": "--- /dev/null\n+++ b/a.txt/x\n@@ -0,0 +1 @@\n+evil\n",
}


GOOD_PATCH = "--- a/good.txt\n+++ b/good.txt\n@@ -1 +1 @@\n-old\n+new\n"
BAD_PARTS = {
    "adds upward": "*** Add File: ../x\n+evil",
    "adds upward in the middle": "*** Add File: in/../../x\n+evil",
    "adds an absolute file": "*** Add File: /tmp/toolwire-evil\n+evil",
    "adds through a link": "*** Add File: out/x\n+evil",
    "adds a protected file": "*** Add File: .git/hooks/post-checkout\n+evil",
    "updates through a link": "*** Update File: file-out\n-theirs\n+evil",
    "updates outside": "*** Update File: ../outside.txt\n-theirs\n+evil",
    "deletes outside": "*** Delete File: ../outside.txt",
    "deletes through a link": "*** Delete File: out/outside.txt",
    "moves outward": "*** Update File: a.txt\n*** Move to: ../x\n-one\n+evil",
    "moves through a link": "*** Update File: a.txt\n*** Move to: out/x\n-one\n+evil",
    "moves onto a protected name": "*** Update File: a.txt\n*** Move to: .bashrc\n-one\n+evil",
    "moves over a file": "*** Update File: a.txt\n*** Move to: good.txt\n-one\n+evil",
    "names no file": "*** Add File: \n+evil",
    "names the root": "*** Add File: .\n+evil",
}


@pytest.mark.parametrize(
    "patch",
    [
        *(GOOD_PATCH + bad for bad in BAD_PATCHES.values()),
        *(
            f"*** Begin Patch\n*** Update File: good.txt\n-old\n+new\n{bad}\n*** End Patch"
            for bad in BAD_PARTS.values()
        ),
    ],
    ids=[*BAD_PATCHES, *(f"envelope that {bad}" for bad in BAD_PARTS)],
)
def test_T24_a_patch_with_one_bad_path_is_refused_whole(
    tmp_path: Path, workspace: Path, granted: Context, patch: str
) -> None:
    (workspace / "a.txt").write_text("one\n")
    (workspace / "good.txt").write_text("old\n")
    (tmp_path / "outside.txt").write_text("theirs\n")
    (workspace / "out").symlink_to("..")
    (workspace / "file-out").symlink_to("../outside.txt")

    def everything() -> dict[str, bytes]:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and ".toolwire" not in path.parts]
        return {str(path): path.read_bytes() for path in files}

    before = everything()
    with pytest.raises(ToolFailure):
        TOOLS["apply_patch"](granted, patch)
    assert everything() == before
    assert (workspace / "file-out").is_symlink()


@pytest.mark.control("T24")
def test_T24_the_same_patch_with_good_paths_is_applied_and_the_naive_way_leads_out(
    call: Call, tmp_path: Path, workspace: Path, granted: Context
) -> None:
    """The control."""
    call(TOOLS["apply_patch"], granted, patch="--- /dev/null\n+++ b/in/x\n@@ -0,0 +1 @@\n+fine\n")
    assert (workspace / "in/x").read_text() == "fine\n"
    (workspace / "../x").write_text("evil")
    assert (tmp_path / "x").exists()


def test_T25_no_expression_makes_a_search_slow(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_text("a" * 1_000_000 + "\n" + "x " * 100_000)
    for pattern in (
        "(a+)+b",
        "(a|aa)+b",
        "(a*)*b",
        "a?" * 100 + "a" * 100 + "b",
        "(x+x+)+y",
        r"(\w+\s?)+!",
        "^(a+)+$y",
    ):
        assert call(grep_tool(FILES), granted, pattern=pattern)["matches"] == []


@pytest.mark.control("T25")
def test_T25_the_usual_engine_does_not_end_with_such_an_expression() -> None:
    """The control: the same search with a backtracking engine uses up all the time it is given."""

    def one_second_of_work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (1, 1))

    program = "import re; re.search('(a+)+b', 'a' * 100)"
    ended = subprocess.run([sys.executable, "-c", program], preexec_fn=one_second_of_work)
    assert -ended.returncode in {signal.SIGXCPU, signal.SIGKILL}
    assert not Pattern("(a+)+b").matches("a" * 100)


class EndlessTree(MemoryFiles):
    """Every folder holds another hundred, and so on without an end."""

    def stat(self, root: str, path: str) -> FileEntry:
        return FileEntry(".", "folder")

    def entries(self, root: str, path: str, most: int) -> list[FileEntry]:
        return [FileEntry(f"d{number}", "folder") for number in range(100)][:most]


@pytest.mark.parametrize("make", [glob_tool, find_tool, grep_tool])
def test_T25_a_tree_without_end_is_left_in_time_and_that_is_said(call: Call, make: Callable[[Any], Tool]) -> None:
    context = Context(grant=Grant(roots=("/workspace",)), timeout_s=600)
    found = call(make(EndlessTree()), context, pattern="nothing")
    assert found["truncated"]
    assert f"Only {MOST_ENTRIES:,} files" in found["note"] or "deep" in found["note"]
    at_once = call(make(EndlessTree()), Context(grant=context.grant, timeout_s=0), pattern="nothing")
    assert at_once["truncated"]
    assert "Time ran out" in at_once["note"]


def test_T25_deep_folders_and_circles_of_links_end(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "/".join(["d"] * 100)).mkdir(parents=True)
    (workspace / "circle").symlink_to(".")
    (workspace / "d" / "back").symlink_to("..")
    (workspace / "a.txt").write_text("word")
    found = call(grep_tool(FILES), granted, pattern="word")
    assert [match["path"] for match in found["matches"]] == ["a.txt"]
    assert "deep" in found["note"]
    assert read_tool(FILES)(granted, "circle/circle/circle/a.txt")["text"] == "word", "the control: circles are there"


def test_T25_a_large_file_is_searched_in_part_and_that_is_said(call: Call, workspace: Path, granted: Context) -> None:
    with (workspace / "huge.txt").open("wb") as file:
        file.truncate(0)
        file.write(b"first word\n")
        for _ in range(17):
            file.write(b"x" * (1024 * 1024 - 1) + b"\n")
        file.write(b"last word\n")
    found = call(grep_tool(FILES), granted, pattern="word")
    assert [match["line"] for match in found["matches"]] == [1]
    assert found["truncated"]
    assert "16 MiB" in found["note"]
