"""Files that usually hold keys are shown by no file tool unless a person has agreed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Grant, Tier, ToolResult
from toolwire.protocol.approvals import Approval
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.policy import Autonomy, Rule
from toolwire.testing import ScriptedModel
from toolwire.toolbox.registry import ToolDependencies, tools_of

MARK = "sk-TOP-SECRET-MARK"
KEYS = [
    ".env",
    ".env.local",
    "app/.env.production",
    ".ssh/id_ed25519",
    ".aws/credentials",
    ".netrc",
    ".git-credentials",
    ".config/gh/hosts.yml",
    "deep/er/.kube/config",
    "id_rsa",
]
GROUPS = ("coding", "other_names")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for key in KEYS:
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_text(f"KEY={MARK}\n", encoding="utf-8")
    for name in ("README.md", ".env.example", "environment.md", "src/env.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("KEY=ordinary\n", encoding="utf-8")
    (folder / "link").symlink_to(".env")
    (folder / "folder").symlink_to(".aws")
    return folder


class Person:
    """Gives one answer to every question, and remembers what was asked."""

    def __init__(self, *, agrees: bool) -> None:
        self.agrees = agrees
        self.asked: list[str] = []

    async def __call__(self, request: NeedsApproval) -> Approval:
        self.asked.append(request.reason)
        return Approval(granted=self.agrees, by="ann")


async def call(
    folder: Path, tool: str, arguments: dict[str, Any], *rules: str, person: Person | None = None, **more: Any
) -> ToolResult:
    grant = Grant(
        Tier.RUN, frozenset({"file_read", "file_write"}), roots=(str(folder),), autonomy=Autonomy.FULL,
        rules=tuple(map(Rule.parse, rules)), **more,
    )  # fmt: skip
    tools = tools_of(GROUPS, ToolDependencies(home=folder.parent / "home"))
    async with asyncio.timeout(60), Agent(ScriptedModel(), tools, grant=grant, approve=person) as agent:
        return await agent.call(tool, arguments)


def shows(result: ToolResult) -> bool:
    return MARK in f"{result.text}{result.structured}"


@pytest.mark.parametrize("path", [*KEYS, "./.env", ".ENV", "app/../.env", "src/../.ssh/id_ed25519"])
@pytest.mark.parametrize("tool", ["read", "read_file"])
async def test_T107_a_file_with_keys_is_asked_about_before_it_is_shown(project: Path, tool: str, path: str) -> None:
    person = Person(agrees=False)
    assert not shows(await call(project, tool, {"path": path}, person=person))
    assert person.asked == [f"{tool!r} would show a file that usually holds keys or passwords."]


@pytest.mark.parametrize("path", KEYS)
async def test_T107_contrast_it_is_shown_after_an_approval(project: Path, path: str) -> None:
    assert shows(await call(project, "read", {"path": path}, person=Person(agrees=True)))


async def test_T107_control_a_file_with_another_name_is_shown_unasked(project: Path) -> None:
    (project / "notes.txt").write_text(MARK, encoding="utf-8")
    assert shows(await call(project, "read", {"path": "notes.txt"}))
    assert shows(await call(project, "grep", {"pattern": "TOP"}))


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "link"}),
        ("read", {"path": "folder/credentials"}),
        ("grep", {"pattern": "KEY"}),
        ("grep", {"pattern": "KEY", "path": "app"}),
        ("grep", {"pattern": "KEY", "path": "folder"}),
        ("search_code", {"query": "KEY"}),
        ("codesearch", {"query": "KEY"}),
    ],
)
async def test_T107_no_link_and_no_search_shows_keys(project: Path, tool: str, arguments: dict[str, Any]) -> None:
    result = await call(project, tool, arguments, person=Person(agrees=True))
    assert not shows(result)
    assert "usually hold" in result.text


async def test_a_search_shows_the_rest_and_says_what_it_left_out(project: Path) -> None:
    found = await call(project, "grep", {"pattern": "KEY"})
    assert {match["path"] for match in found.structured["matches"]} == {
        "README.md", ".env.example", "environment.md", "src/env.py",
    }  # fmt: skip
    assert f"Left out since they usually hold keys: {len(KEYS)} files." in found.text


async def test_a_search_of_one_file_with_keys_is_asked_about(project: Path) -> None:
    assert not shows(await call(project, "grep", {"pattern": "KEY", "path": ".env"}))
    assert shows(await call(project, "grep", {"pattern": "KEY", "path": ".env"}, person=Person(agrees=True)))


@pytest.mark.parametrize("path", ["README.md", ".env.example", "environment.md", "src/env.py"])
async def test_ordinary_files_are_shown_unasked(project: Path, path: str) -> None:
    assert "ordinary" in (await call(project, "read", {"path": path})).text


@pytest.mark.parametrize(
    ("rules", "confirmed"),
    [(("allow read where path is .env",), ()), (("allow read",), ()), ((), ("read",)), ((), ("*",))],
)
async def test_what_the_operator_allows_or_confirms_is_not_asked_about(
    project: Path, rules: tuple[str, ...], confirmed: tuple[str, ...]
) -> None:
    assert shows(await call(project, "read", {"path": ".env"}, *rules, confirmed=frozenset(confirmed)))


async def test_names_of_such_files_are_listed(project: Path) -> None:
    assert "id_rsa" in (await call(project, "list", {"path": "."})).text
