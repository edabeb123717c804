"""Patches: both forms, over several files at once, all or nothing."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Grant
from toolwire.testing import MemoryFiles
from toolwire.toolbox import LocalFiles, apply_patch_tool
from toolwire.toolbox.files.patch_hunks import apply_patch_to
from toolwire.toolbox.files.patch_syntax import read_patch

Call = Callable[..., Any]
PATCH = apply_patch_tool(LocalFiles())
MEMORY = Context(grant=Grant(roots=("/workspace",)))
STORY = "".join(f"line {number}\n" for number in range(1, 21))


def patched(call: Call, files: dict[str, str], patch: str) -> dict[str, str]:
    store = MemoryFiles(files)
    call(apply_patch_tool(store), MEMORY, patch=patch)
    return {path: body.decode() for path, body in store.files.items()}


def refused(files: dict[str, str], patch: str) -> str:
    store = MemoryFiles(files)
    with pytest.raises(ToolFailure) as raised:
        apply_patch_tool(store)(MEMORY, patch)
    assert {path: body.decode() for path, body in store.files.items()} == files
    assert raised.value.code in {Code.INVALID_PARAMS, Code.NOT_FOUND, Code.PERMISSION_DENIED}
    return str(raised.value)


UNIFIED = """\
diff --git a/a.txt b/a.txt
index 123..456 100644
--- a/a.txt
+++ b/a.txt
@@ -1,3 +1,4 @@
 line 1
-line 2
+line two
+and a half
 line 3
@@ -18,3 +19,2 @@ some function
 line 18
-line 19
 line 20
diff --git a/new/b.txt b/new/b.txt
new file mode 100644
--- /dev/null
+++ b/new/b.txt
@@ -0,0 +1,2 @@
+first
+second
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-bye
"""
ENVELOPE = """\
*** Begin Patch
*** Update File: a.txt
@@
 line 1
-line 2
+line two
+and a half
 line 3
@@ line 17
 line 18
-line 19
 line 20
*** End of File
*** Add File: new/b.txt
+first
+second
*** Delete File: gone.txt
*** End Patch
"""


@pytest.mark.feature("F257")
@pytest.mark.parametrize("patch", [UNIFIED, ENVELOPE], ids=["unified", "envelope"])
def test_a_patch_changes_adds_and_deletes_files_together(
    call: Call, workspace: Path, granted: Context, patch: str
) -> None:
    (workspace / "a.txt").write_text(STORY)
    (workspace / "gone.txt").write_text("bye\n")
    assert call(PATCH, granted, patch=patch) == {
        "files": [
            {"path": "a.txt", "action": "updated"},
            {"path": "new/b.txt", "action": "added"},
            {"path": "gone.txt", "action": "deleted"},
        ],
        "lines_added": 4,
        "lines_removed": 3 if patch is UNIFIED else 2,
    }
    after = STORY.replace("line 2\n", "line two\nand a half\n", 1).replace("line 19\n", "")
    assert (workspace / "a.txt").read_text() == after
    assert (workspace / "new/b.txt").read_text() == "first\nsecond\n"
    assert not (workspace / "gone.txt").exists()


@pytest.mark.feature("F257")
@pytest.mark.parametrize(
    "bad",
    [
        "--- a/missing.txt\n+++ b/missing.txt\n@@ -1 +1 @@\n-a\n+b\n",
        "--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-not there\n+b\n",
        "--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+exists already\n",
        "--- /dev/null\n+++ b/../../x\n@@ -0,0 +1 @@\n+out\n",
        "--- /dev/null\n+++ b/.git/hooks/pre-commit\n@@ -0,0 +1 @@\n+evil\n",
        "--- /dev/null\n+++ /etc/x\n@@ -0,0 +1 @@\n+out\n",
        "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-line 1\n+again\n",
        "--- a/b.txt\n+++ b/b.txt\n@@ -1,5 +1,5 @@\n-b\n+short hunk\n",
        "--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-other content\n",
    ],
)
def test_one_part_that_does_not_fit_refuses_the_whole_patch(bad: str) -> None:
    good = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-line 1\n+line one\n"
    assert refused({"a.txt": STORY, "b.txt": "b\n"}, good + bad)


def test_lines_that_have_moved_are_found_where_they_are_now(call: Call) -> None:
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n line 15\n-line 16\n+moved\n"
    assert patched(call, {"a.txt": STORY}, patch)["a.txt"] == STORY.replace("line 16", "moved")


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("*** Begin Patch\n*** Update File: a\n-x\n+y\n*** End Patch", "more than once"),
        ("*** Begin Patch\n*** Update File: a\n@@ nowhere\n-x\n+y\n*** End Patch", "no line 'nowhere'"),
        ("*** Begin Patch\n*** Update File: a\n-z\n+y\n*** End Patch", "not in the file"),
        ("*** Begin Patch\n*** Update File: a\n-x\n+y\n", "cut off"),
        ("*** Begin Patch\n*** Update File: a\n*** End Patch", "does not say what to change"),
        ("*** Begin Patch\nwhat\n*** End Patch", "line 2: expected one of"),
        ("*** Begin Patch\n*** Add File: b\nno plus\n*** End Patch", "line 3: expected a line that begins with '+'"),
        ("*** Begin Patch\n*** End Patch", "no file is named"),
        ("hello", "no file is named"),
        ("@@ -1 +1 @@\n-a\n+b\n", "before any"),
        ("--- a/a\n+++ b/a\n@@ -1,2 +1 @@\n-x\n", "shorter than its head"),
        ("new file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n", "links"),
        ("GIT binary patch\n", "binary"),
        ('--- "a/\\303\\244"\n+++ "b/x"\n@@ -1 +1 @@\n-x\n+y\n', "quoted"),
    ],
)
def test_a_patch_that_cannot_be_read_or_placed_says_where_and_what_to_do(patch: str, words: str) -> None:
    assert words in refused({"a": "x\nsep\nx\n"}, patch)


@pytest.mark.parametrize(
    ("before", "hunk", "after"),
    [
        ("x\nsep\nx\n", "@@ sep\n-x\n+y", "x\nsep\ny\n"),
        ("x\nsep\nx\n", "-x\n+y\n*** End of File", "x\nsep\ny\n"),
        ("a\n", "+b", "a\nb\n"),
        ("", "+b", "b\n"),
        ("\n", " \n+b", "\nb\n"),
        ("a", "-a\n+b", "b"),
        ("a\nb", " a\n-b", "a"),
        ("a\n", "-a", ""),
        ("a\r\nb\r\n", " a\n-b\n+c", "a\r\nc\r\n"),
        ("a\nb\n", "@@ -2,1 +2,1 @@\n-b\n+c", "a\nc\n"),
        ("a\n\nb\n", " a\n\n-b\n+c\n", "a\n\nc\n"),
        ("x\ny\nx\ny\n", "@@\n x\n-y\n+1\n@@\n x\n-y\n+2", None),
    ],
)
def test_hunks_of_an_envelope_are_placed_by_their_lines(call: Call, before: str, hunk: str, after: str | None) -> None:
    patch = f"*** Begin Patch\n*** Update File: a\n{hunk}\n*** End Patch\n"
    if after is None:
        assert "more than once" in refused({"a": before}, patch)
    else:
        assert patched(call, {"a": before}, patch)["a"] == after


def test_a_file_is_moved_and_changed_at_once(call: Call) -> None:
    envelope = "*** Begin Patch\n*** Update File: a\n*** Move to: b/c\n-x\n+y\n*** End Patch"
    assert patched(call, {"a": "x\n"}, envelope) == {"b/c": "y\n"}
    renamed = "diff --git a/a b/c\nsimilarity index 100%\nrename from a\nrename to c\n"
    assert patched(call, {"a": "x\n"}, renamed) == {"c": "x\n"}
    both = "diff --git a/a b/c\nrename from a\nrename to c\n--- a/a\n+++ b/c\n@@ -1 +1 @@\n-x\n+y\n"
    assert patched(call, {"a": "x\n"}, both) == {"c": "y\n"}
    assert "exists already" in refused({"a": "x\n", "b/c": "there\n"}, envelope)


@given(before=st.lists(st.sampled_from("abc"), max_size=12), after=st.lists(st.sampled_from("abc"), max_size=12))
def test_every_diff_that_diff_makes_leads_from_the_old_text_to_the_new(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], after: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("diff")
    old, new = "".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after)
    (folder / "a").write_text(old)
    (folder / "b").write_text(new)
    made = subprocess.run(
        ["/usr/bin/diff", "-U1", "--label", "a/f", "--label", "b/f", "a", "b"],
        cwd=folder,
        capture_output=True,
        text=True,
    ).stdout
    if made:
        [patch] = read_patch(made)
        assert apply_patch_to(patch, old) == new


def test_a_missing_last_line_end_is_added_or_taken_as_the_patch_says(call: Call) -> None:
    add = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+x\n"
    take = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+x\n\\ No newline at end of file\n"
    assert patched(call, {"f": "x"}, add)["f"] == "x\n"
    assert patched(call, {"f": "x\n"}, take)["f"] == "x"
    bare = "--- /dev/null\n+++ b/g\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    assert patched(call, {}, bare)["g"] == "x"


def test_a_second_attempt_finds_the_patch_applied(call: Call, workspace: Path) -> None:
    (workspace / "a").write_text("x\n")
    patch = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"
    grant = Grant(roots=(str(workspace),))
    said = call(PATCH, Context("c", "t", grant=grant), patch=patch)
    assert call(PATCH, Context("c", "t", grant=grant, attempt=2), patch=patch) == said
    assert (workspace / "a").read_text() == "y\n"


LINES = [
    "*** Begin Patch",
    "*** End Patch",
    "*** Add File: a",
    "*** Update File: a",
    "*** Move to: b",
    "*** End of File",
]
LINES += [
    "@@",
    "@@ x",
    "@@ -1 +1 @@",
    "@@ -1,2 +0,0 @@",
    "@@ -0,0 +1,2 @@",
    "@@ -9999,3 +1 @@",
    "--- a/a",
    "+++ b/a",
    "-x",
    "+x",
]
LINES += [
    " x",
    "",
    "x",
    "\\ No newline at end of file",
    "--- /dev/null",
    "+++ /dev/null",
    "rename from a",
    "rename to b",
    "\r",
]


@given(
    patch=st.lists(st.sampled_from(LINES), max_size=12).map("\n".join),
    frame=st.sampled_from(["{}", "*** Begin Patch\n{}\n*** End Patch", "--- a/a\n+++ b/a\n{}"]),
    body=st.text(st.sampled_from("x\n\ry"), max_size=8),
)
def test_no_patch_whatever_its_lines_does_more_than_be_applied_or_refused(patch: str, frame: str, body: str) -> None:
    files = MemoryFiles({"a": body})
    try:
        apply_patch_tool(files)(MEMORY, frame.format(patch))
    except ToolFailure:
        assert files.files == {"a": body.encode()}
