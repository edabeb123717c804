"""A rule about a path means the file, however it is reached and whichever tool reaches it."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.toolbox.git_places import started
from toolwire import Agent, Grant, Tier, ToolResult
from toolwire.protocol.approvals import Approval
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.policy import Autonomy, Rule
from toolwire.testing import ScriptedModel
from toolwire.toolbox.disk.local_files import LocalFiles
from toolwire.toolbox.files.reading import read_tool
from toolwire.toolbox.registry import ToolDependencies, tools_of
from toolwire.toolbox.remote_files.client import RemoteFiles
from toolwire.toolbox.remote_files.server import answer

MARK = "TOP-SECRET-MARK"
READ = "deny read where path is secrets/*"
WRITE = "deny write where path is *.lock"
GROUPS = ("coding", "other_names", "shell", "git")
PERMISSIONS = frozenset({"file_read", "file_write", "shell", "git"})
ADD = "*** Begin Patch\n*** {} File: uv.lock\n{}*** End Patch"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository, made once: to copy it takes less than git does to make it."""
    folder = tmp_path_factory.mktemp("original") / "project"
    (folder / "secrets").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "secrets" / "k").write_text(f"{MARK}\n", encoding="utf-8")
    (folder / "README.md").write_text("ordinary words\n", encoding="utf-8")
    (folder / "src" / "main.py").write_text("ordinary = 1\n", encoding="utf-8")
    (folder / "uv.lock").write_text("before\n", encoding="utf-8")
    for name, target in {
        "link": "secrets/k", "folder": "secrets", "src/up": "../folder", "fine": "README.md", "pin": "uv.lock",
    }.items():  # fmt: skip
        (folder / name).symlink_to(target)
    started(folder)
    with (folder / "secrets" / "k").open("a", encoding="utf-8") as file:
        file.write("and more\n")
    return folder


@pytest.fixture
def project(tmp_path: Path, original: Path) -> Path:
    return shutil.copytree(original, tmp_path / "project", symlinks=True)


async def call(
    folder: Path, tool: str, arguments: dict[str, Any], *rules: str, autonomy: Autonomy = Autonomy.FULL, **more: Any
) -> ToolResult:
    spoken = tuple(map(Rule.parse, rules))
    grant = Grant(Tier.RUN, PERMISSIONS, roots=(str(folder),), autonomy=autonomy, rules=spoken)
    tools = tools_of(GROUPS, ToolDependencies(home=folder.parent / "home"))
    async with asyncio.timeout(60), Agent(ScriptedModel(), tools, grant=grant, **more) as agent:
        return await agent.call(tool, arguments)


def shell(*texts: str) -> list[tuple[str, dict[str, Any]]]:
    return [("bash", {"command": text}) for text in texts]


BY_TOOLS: list[tuple[str, dict[str, Any]]] = [
    *(("read", {"path": path}) for path in ("secrets/k", "./secrets//k", "SECRETS/K", "link", "folder/k", "src/up/k")),
    ("read", {"path": "src/../secrets/k"}),
    ("read_file", {"path": "secrets/k"}),
    ("read_file", {"path": "link"}),
    *(("grep", {"pattern": "TOP", "path": path}) for path in (".", "secrets", "secrets/k", "folder", "link", "src/up")),
    ("search_code", {"query": "SECRET MARK"}),
    ("codesearch", {"query": "SECRET MARK"}),
    ("edit", {"path": "secrets/k", "old_text": "and more", "new_text": "no more"}),
    ("edit_block", {"path": "secrets/k", "old_text": "and more", "new_text": "no more"}),
    ("apply_patch", {"patch": "--- a/secrets/k\n+++ b/secrets/k\n@@ -1 +1 @@\n-wrong\n+right\n"}),
    ("git_diff", {}),
]
BY_COMMANDS = shell(
    "cat secrets/k",
    "cat link",
    "cat folder/k",
    "cd secrets && cat k",
    "cd folder; cat k",
    "cat < secrets/k",
    "grep -r TOP .",
    "grep -rn TOP folder/",
    "cat */k",
    "cat $(echo secrets/k)",
    "find . -type f | xargs cat",
    "cat /workspace/secrets/k",
    "cat src/../secrets/k",
    "cat src/up/k",
    "cat ../workspace/secrets/k",
    "cat //workspace/./secrets/k",
    "cat /proc/self/cwd/secrets/k",
    "cat /proc/self/root/workspace/secrets/k",
    "cd .. && cat workspace/secrets/k",
    "ln -s ../workspace y && cat y/secrets/k",
    "mv secrets y && cat y/k",
    "grep -r TOP /workspace",
    "grep -r --include=k TOP /",
    "head -c 99 sec'ret's/k",
    "diff -rN src secrets",
    "git show HEAD:secrets/k",
    "git grep TOP",
    "git -C secrets show HEAD:./k",
    "cp -r . /tmp/copy; cat /tmp/copy/secrets/k",
    'python3 -c \'print(open("sec" + "rets/k").read())\'',
    "awk 1 secrets/k",
    "wc --files0-from=secrets/k",
)


HELD_ANYWAY = ("SECRETS/K", "wrong", "--files0-from")
"""Spellings that lead nowhere here for another reason: the rule holds where they do lead to the file."""


@pytest.mark.parametrize(("tool", "arguments"), [*BY_TOOLS, *BY_COMMANDS])
async def test_T91_what_may_not_be_read_is_shown_by_no_tool(
    project: Path, tool: str, arguments: dict[str, Any]
) -> None:
    result = await call(project, tool, arguments, READ)
    assert MARK not in f"{result.text}{result.structured}"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [one for one in (*BY_TOOLS, *BY_COMMANDS) if not any(each in str(one) for each in HELD_ANYWAY)],
)
async def test_T91_control_without_the_rule_these_show_it(project: Path, tool: str, arguments: dict[str, Any]) -> None:
    result = await call(project, tool, arguments)
    assert MARK in f"{result.text}{result.structured}"


@pytest.mark.parametrize(
    "text", ["cat secrets/k", "cat link", "grep -r TOP .", "cat */k", "cat ../workspace/secrets/k"]
)
async def test_T91_what_only_reads_does_not_run_unasked_where_it_could_reach_a_denied_file(
    project: Path, text: str
) -> None:
    supervised = Autonomy.SUPERVISED
    assert MARK in (await call(project, "bash", {"command": text}, autonomy=supervised)).text, "the control: unasked"
    assert MARK not in (await call(project, "bash", {"command": text}, READ, autonomy=supervised)).text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("list", {"path": "secrets"}),
        ("list_dir", {"path": "folder"}),
        ("glob", {"pattern": "**/*"}),
        ("glob", {"pattern": "*", "path": "secrets"}),
        ("find", {"pattern": "k"}),
        ("find", {"pattern": "*", "path": "folder"}),
        ("stat", {"path": "secrets/k"}),
        ("stat", {"path": "folder/k"}),
    ],
)
async def test_T91_a_denied_file_is_not_listed_and_the_listing_says_that_it_leaves_something_out(
    project: Path, tool: str, arguments: dict[str, Any]
) -> None:
    (project / "secrets" / "k").rename(project / "secrets" / "unspeakable")
    arguments = {name: value.replace("/k", "/unspeakable") for name, value in arguments.items()}
    arguments = {**arguments, "pattern": "unspeak"} if arguments.get("pattern") == "k" else arguments
    shown = await call(project, tool, arguments)
    assert "unspeakable" in shown.text, "the control: without the rule it is there"

    result = await call(project, tool, arguments, READ)

    assert "unspeakable" not in result.text.replace(str(arguments.get("path")), "")
    assert result.ok is (tool != "stat")
    assert "Left out by rule: 1 entry." in result.text or tool == "stat"


@pytest.mark.parametrize(
    "text", ["echo folder/*", "for f in fol*/*; do echo $f; done", "echo src/?p/*", "printf %s {folder,x}/*"]
)
async def test_T113_no_pattern_lists_a_denied_folder_through_a_link(project: Path, text: str) -> None:
    (project / "secrets" / "UNHEARD-OF").touch()
    rule = "deny read where path is secrets/*"
    assert "UNHEARD-OF" not in str((await call(project, "bash", {"command": text}, rule)).structured)
    assert "UNHEARD-OF" in str((await call(project, "bash", {"command": text})).structured), "the control"


async def test_a_rule_about_a_folder_leaves_the_rest_of_the_project_as_it_was(project: Path) -> None:
    found = await call(project, "grep", {"pattern": "ordinary"}, READ)
    assert [match["path"] for match in found.structured["matches"]] == ["README.md", "src/main.py"]
    assert "ordinary words" in (await call(project, "read", {"path": "fine"}, READ)).text
    assert (await call(project, "search_code", {"query": "ordinary"}, READ)).structured["hits"]
    assert "src" in (await call(project, "list", {}, READ)).text
    new = await call(project, "write", {"path": "new.txt", "content": "x"}, READ)
    assert new.ok, new.text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "cat README.md",
            "cat fine",
            "ls",
            "ls -la src",
            "grep -rn ordinary src",
            "git status --short",
            "pwd; echo a",
        ),
        *("cd src && cat main.py", "wc -l README.md src/main.py", "git log --oneline", "find src -name main.py"),
    ],
)
async def test_reading_commands_that_cannot_reach_a_denied_file_run_unasked(project: Path, text: str) -> None:
    result = await call(project, "bash", {"command": text}, READ, autonomy=Autonomy.SUPERVISED)
    assert result.ok, result.text
    assert result.structured["exit_code"] == 0, result.text


async def test_a_command_that_names_a_denied_file_is_refused_and_one_that_could_reach_it_is_asked_about(
    project: Path,
) -> None:
    asked: list[NeedsApproval] = []

    async def approve(request: NeedsApproval) -> Approval:
        asked.append(request)
        return Approval(granted=True)

    plainly = await call(project, "bash", {"command": "cat secrets/k"}, READ, approve=approve)
    assert (asked, "(deny read where path is secrets/*)" in plainly.text) == ([], True)
    perhaps = await call(project, "bash", {"command": "grep -r ordinary ."}, READ, approve=approve)
    assert len(asked) == 1
    assert READ in asked[0].reason
    assert "ordinary words" in perhaps.text


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("write", {"path": "uv.lock", "content": "after\n"}),
    ("write_file", {"path": "uv.lock", "content": "after\n"}),
    ("write_file", {"path": "UV.LOCK", "content": "after\n"}),
    ("write_file", {"path": "./x.lock/../uv.lock", "content": "after\n"}),
    ("edit", {"path": "uv.lock", "old_text": "before", "new_text": "after"}),
    ("edit_block", {"path": "uv.lock", "old_text": "before", "new_text": "after"}),
    ("apply_patch", {"patch": ADD.format("Update", "-before\n+after\n")}),
    ("apply_patch", {"patch": ADD.format("Delete", "")}),
    ("apply_patch", {"patch": "*** Begin Patch\n*** Update File: uv.lock\n*** Move to: a.txt\n*** End Patch"}),
    *shell("echo after > uv.lock", "sed -i s/before/after/ uv.lock", "cp README.md uv.lock", "echo after | tee pin"),
    *shell("echo after > pin", "rm uv.lock", "mv uv.lock a", "for f in *.lock; do echo after > $f; done"),
    *shell('python3 -c \'open("uv.lo" + "ck", "w")\'', "perl -e 'unlink glob(\"*.lock\")'"),
]


@pytest.mark.parametrize(("tool", "arguments"), CHANGES)
async def test_T91_what_may_not_be_written_is_changed_by_no_tool(
    project: Path, tool: str, arguments: dict[str, Any]
) -> None:
    await call(project, tool, arguments, WRITE)
    assert (project / "uv.lock").read_text(encoding="utf-8") == "before\n"


@pytest.mark.parametrize(
    ("tool", "arguments"), [one for one in CHANGES if "/../" not in str(one) and "UV" not in str(one)]
)
async def test_T91_control_without_the_rule_these_change_it(
    project: Path, tool: str, arguments: dict[str, Any]
) -> None:
    await call(project, tool, arguments)
    lock = project / "uv.lock"
    assert not lock.exists() or lock.read_text(encoding="utf-8") != "before\n"


async def test_a_rule_about_writing_leaves_reading_and_other_files_alone(project: Path) -> None:
    assert "before" in (await call(project, "read", {"path": "uv.lock"}, WRITE)).text
    for tool, arguments in [
        ("write", {"path": "src/new.py", "content": "x = 1\n"}),
        ("edit", {"path": "src/main.py", "old_text": "1", "new_text": "2"}),
        ("apply_patch", {"patch": ADD.format("Add", "+x\n").replace("uv.lock", "note.txt")}),
        *shell("cat uv.lock", "touch a.txt", "echo x > b.txt", "cp README.md c.md", "mkdir -p d/e", "rm README.md"),
    ]:
        result = await call(project, tool, arguments, WRITE)
        assert result.ok, (arguments, result.text)


async def test_a_file_that_a_rule_asks_about_is_asked_about_by_its_own_name_and_left_out_of_searches(
    project: Path,
) -> None:
    asked: list[str] = []

    async def approve(request: NeedsApproval) -> Approval:
        asked.append(str(request.allowed.arguments))
        return Approval(granted=True)

    rule = "ask read where path is secrets/*"
    by_link = await call(project, "read", {"path": "link"}, rule, approve=approve)
    assert (asked, MARK in by_link.text) == ([], False)
    assert "call the tool with that path" in by_link.text
    assert MARK in (await call(project, "read_file", {"path": "secrets/k"}, rule, approve=approve)).text
    assert MARK in (await call(project, "grep", {"pattern": "TOP", "path": "secrets/k"}, rule, approve=approve)).text
    assert len(asked) == 2
    found = await call(project, "grep", {"pattern": "TOP"}, rule, approve=approve)
    assert (MARK in found.text, len(asked)) == (False, 2)
    assert "Left out by rule" in found.text


async def test_T91_a_patch_to_a_file_that_a_rule_about_another_tool_asks_about_is_asked_about(project: Path) -> None:
    patch = {"patch": ADD.format("Update", "-before\n+after\n")}
    result = await call(project, "apply_patch", patch, "ask write where path is *.lock")
    assert "No approver is present" in result.text
    assert (project / "uv.lock").read_text(encoding="utf-8") == "before\n"


@pytest.mark.parametrize(
    "pattern", ["secrets", "secrets/", "./secrets/*", "secrets/**", "**/k", "*/k", "/workspace/secrets/*"]
)
async def test_a_pattern_means_the_same_in_all_its_usual_spellings(project: Path, pattern: str) -> None:
    for path in ("secrets/k", "link", "folder/k", str(project / "secrets" / "k")):
        result = await call(project, "read", {"path": path}, f"deny read where path is {pattern}")
        assert MARK not in result.text, path
    assert (await call(project, "read", {"path": "README.md"}, f"deny read where path is {pattern}")).ok


async def test_T91_letters_of_another_unicode_form_name_the_same_file(project: Path) -> None:
    (project / "gehe\u0131m").mkdir()
    (project / "cafe\u0301").write_text(MARK, encoding="utf-8")
    result = await call(project, "read", {"path": "cafe\u0301"}, "deny read where path is caf\u00e9")
    assert MARK not in result.text


@pytest.mark.parametrize("pattern", ["secrets/*", "*/k"])
async def test_T91_a_hard_link_is_another_name_of_the_same_file(project: Path, pattern: str) -> None:
    (project / "hard").hardlink_to(project / "secrets" / "k")
    (project / "other").hardlink_to(project / "README.md")
    rule = f"deny read where path is {pattern}"
    for tool, arguments in (
        ("read", {"path": "hard"}),
        ("grep", {"pattern": "TOP|ordinary"}),
        ("bash", {"command": "cat hard"}),
    ):
        assert MARK in (await call(project, tool, arguments)).text, "the control: without the rule it is shown"
        assert MARK not in (await call(project, tool, arguments, rule)).text
    assert "ordinary" in (await call(project, "read", {"path": "other"}, rule)).text
    assert "ordinary" in (await call(project, "bash", {"command": "cat other"}, rule)).text


async def test_T91_a_link_on_another_machine_is_followed_there(project: Path) -> None:
    far = RemoteFiles(lambda message: answer(LocalFiles(), [str(project)], message))
    rules = (Rule.parse(READ),)
    grant = Grant(Tier.RUN, PERMISSIONS, roots=(str(project),), rules=rules)
    async with Agent(ScriptedModel(), [read_tool(far)], grant=grant) as agent:
        assert MARK not in (await agent.call("read", {"path": "link"})).text
        assert "ordinary" in (await agent.call("read", {"path": "fine"})).text


async def test_T91_a_link_that_is_swapped_while_it_is_read_shows_nothing(project: Path) -> None:
    """What was opened is compared, not what its name led to a moment before."""

    class Swapping(LocalFiles):
        def open(self, root: str, path: str) -> Any:
            file = super().open(root, path)
            (project / "link").unlink()
            (project / "link").symlink_to("README.md")
            return file

    grant = Grant(Tier.RUN, PERMISSIONS, roots=(str(project),), rules=(Rule.parse(READ),))
    async with Agent(ScriptedModel(), [read_tool(Swapping())], grant=grant) as agent:
        assert MARK not in (await agent.call("read", {"path": "link"})).text
    assert (project / "link").readlink() == Path("README.md"), "the control: it was swapped"


async def test_T91_a_difference_leaves_a_denied_file_out(project: Path) -> None:
    (project / "secrets" / "k").write_text("changed", encoding="utf-8")
    (project / "README.md").write_text("other words\n", encoding="utf-8")
    assert MARK in (await call(project, "git_diff", {})).text, "the control"
    shown = await call(project, "git_diff", {}, READ)
    assert MARK not in shown.text
    assert "secrets" not in shown.structured["patch"]
    assert "other words" in shown.structured["patch"]
    assert shown.structured["note"] == "Left out by rule: 1 file."
    assert MARK not in (await call(project, "git_diff", {"paths": ["secrets/k"]}, READ)).text
    assert "other words" in (await call(project, "git_diff", {"paths": ["README.md"]}, READ)).text
