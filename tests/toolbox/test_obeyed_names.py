"""Names that other programs obey, written by file tools: some never, some after approval, whatever is confirmed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Approval, Grant, Tier
from toolwire.protocol.calls import NeedsApproval, ToolResult
from toolwire.protocol.obeyed import Obeyed, class_of
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Autonomy, Rule
from toolwire.testing import ScriptedModel
from toolwire.toolbox import coding, other_names

ASKED = """
.vscode/settings.json sub/.vscode/tasks.json .github/workflows/ci.yml .idea/workspace.xml
.claude/settings.json .mcp.json .envrc .husky/pre-commit .pre-commit-config.yaml .gitlab-ci.yml .npmrc
packages/app/.npmrc pip.conf .cargo/config.toml sitecustomize.py .devcontainer/devcontainer.json
.zed/tasks.json .windsurf/x .cursor/mcp.json .codex/config.toml .VSCode/settings.json .Envrc
./.vscode/settings.json a//.vscode/x
""".split()
REFUSED = ".git/hooks/pre-commit .toolwire/x toolwire.toml sub/toolwire.toml .bashrc .ssh/config .gitmodules".split()
PLAIN = "src/main.py .gitignore AGENTS.md .github/ISSUE_TEMPLATE/bug.md vscode/settings.json Makefile".split()
EVERYTHING = frozenset({"file_read", "file_write"})


class Person:
    """Answers every question in the same way, and remembers them."""

    def __init__(self, *, says: bool) -> None:
        self.says = says
        self.reasons: list[str] = []

    async def __call__(self, request: NeedsApproval) -> Approval:
        self.reasons.append(request.reason)
        return Approval(granted=self.says, by="dana")


async def called(
    workspace: Path, person: Person, tool: str, arguments: Mapping[str, Any], *rules: str, sure: bool = True
) -> ToolResult:
    """One call under a grant that leaves nothing to ask, unless the call is special."""
    grant = Grant(
        tier=Tier.RUN, permissions=EVERYTHING, roots=(str(workspace),),
        confirmed=frozenset({"*"} if sure else ()), autonomy=Autonomy.FULL, rules=tuple(map(Rule.parse, rules)),
    )  # fmt: skip
    async with Agent(ScriptedModel(), [*coding(), *other_names()], grant=grant, approve=person) as agent:
        return await agent.call(tool, dict(arguments))


def patch(path: str) -> str:
    return f"*** Begin Patch\n*** Add File: {path}\n+new\n*** End Patch"


WAYS: dict[str, Any] = {
    "write": lambda path: {"path": path, "content": "new\n"},
    "write_file": lambda path: {"path": path, "content": "new\n"},
    "apply_patch": lambda path: {"patch": patch(path)},
}


@pytest.mark.parametrize("tool", WAYS)
@pytest.mark.parametrize("path", ASKED)
async def test_T23_a_name_that_others_obey_is_written_only_after_approval_whatever_is_confirmed(
    workspace: Path, tool: str, path: str
) -> None:
    no, yes = Person(says=False), Person(says=True)

    refused = await called(workspace, no, tool, WAYS[tool](path))
    assert not refused.ok
    assert not (workspace / path).exists()

    written = await called(workspace, yes, tool, WAYS[tool](path))
    assert written.ok, written.error
    assert (workspace / path).read_text() == "new\n"
    assert all("Other programs obey" in reason for reason in (*no.reasons, *yes.reasons))
    assert (len(no.reasons), len(yes.reasons)) == (1, 1)


@pytest.mark.parametrize("path", PLAIN)
async def test_T23_control_an_ordinary_name_needs_no_approval_there(workspace: Path, path: str) -> None:
    person = Person(says=False)

    assert (await called(workspace, person, "write", {"path": path, "content": "new\n"})).ok
    assert person.reasons == []


@pytest.mark.parametrize("path", REFUSED)
async def test_T23_some_names_are_refused_even_after_approval(workspace: Path, path: str) -> None:
    result = await called(workspace, Person(says=True), "write", {"path": path, "content": "evil"}, sure=False)

    assert result.error is not None
    assert result.error.code is Code.PERMISSION_DENIED
    assert not (workspace / path).exists()


async def test_T23_editing_and_moving_onto_such_a_name_ask_too(workspace: Path) -> None:
    (workspace / ".npmrc").write_text("one\n")
    (workspace / "plain").write_text("two\n")
    move = "*** Begin Patch\n*** Update File: plain\n*** Move to: .envrc\n*** End Patch"
    remove = "*** Begin Patch\n*** Delete File: .npmrc\n*** End Patch"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("edit", {"path": ".npmrc", "old_text": "one", "new_text": "evil"}),
        ("apply_patch", {"patch": move}),
        ("apply_patch", {"patch": remove}),
        ("write", {"path": str(workspace / ".npmrc"), "content": "evil"}),
    ]
    for tool, arguments in calls:
        assert not (await called(workspace, Person(says=False), tool, arguments)).ok
    assert (workspace / ".npmrc").read_text() == "one\n"
    assert not (workspace / ".envrc").exists()


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        ("allow write where path is .vscode/*", False),
        ("allow write", True),
        ("allow write where path is *", True),
        ("allow write where path is *.json", True),
        ("allow write where path is .github/*", True),
        ("allow needs file_write", True),
    ],
)
async def test_T23_only_a_rule_that_names_the_thing_itself_allows_it(workspace: Path, rule: str, *, asks: bool) -> None:
    person = Person(says=False)

    result = await called(workspace, person, "write", {"path": ".vscode/settings.json", "content": "{}"}, rule)

    assert (result.ok, len(person.reasons)) == (not asks, int(asks))


async def test_T23_a_rule_that_denies_wins(workspace: Path) -> None:
    rules = ("deny write where path is .vscode/*", "allow write where path is .vscode/*")
    person = Person(says=True)

    assert not (await called(workspace, person, "write", {"path": ".vscode/x", "content": "{}"}, *rules)).ok
    assert person.reasons == []


def test_a_workspace_may_itself_lie_in_a_folder_of_that_name() -> None:
    assert class_of("worktrees/x/src/main.py") is None
    assert class_of(".claude/worktrees/x/src/main.py") == (Obeyed.ASKED, ".claude")


async def test_a_file_in_such_a_workspace_is_ordinary(tmp_path: Path) -> None:
    workspace = tmp_path / ".claude" / "worktree"
    workspace.mkdir(parents=True)
    person = Person(says=False)

    assert (await called(workspace, person, "write", {"path": str(workspace / "a.py"), "content": "x"})).ok
    assert person.reasons == []
