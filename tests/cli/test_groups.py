"""Groups of built-in tools by name: the thirty of a desktop agent are there, and each of them can be called."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import MODEL, scripted
from tests.toolbox.git_places import git, started
from toolwire.cli.entry.exits import Exit

DESKTOP = (
    "read write edit glob grep websearch webfetch codesearch bash question todowrite todoread task skill sessions_list "
    "sessions_history sessions_send sessions_spawn session_status agents_list git_status git_diff git_commit git_log "
    "git_branch apply_patch browser canvas nodes image"
).split()
SETTINGS = f"""\
model = "{MODEL}"
[tools]
groups = ["desktop"]
skills_path = "skills"
[search]
backend = "local"
folder = "work"
[grant]
tier = "run"
permissions = ["file_read", "file_write", "shell", "network", "git", "session"]
roots = ["work"]
network = ["127.0.0.1:1"]
confirmed = ["*"]
"""
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+white\n*** End Patch\n"
CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "read": ({"path": "tea.txt"}, "green"),
    "write": ({"path": "cups.txt", "content": "two\n"}, "cups.txt"),
    "edit": ({"path": "tea.txt", "old_text": "green", "new_text": "oolong"}, "tea.txt"),
    "glob": ({"pattern": "*.txt"}, "tea.txt"),
    "grep": ({"pattern": "black"}, "tea.txt:2:black"),
    "websearch": ({"query": "steep"}, '"backend":"local"'),
    "codesearch": ({"query": "steep"}, "code.py:1:def steep"),
    "bash": ({"command": "wc -l < tea.txt"}, '"engine":"bubblewrap"'),
    "todowrite": ({"task": "boil water"}, "boil water"),
    "todoread": ({}, "todos"),
    "task": ({"prompt": "Which tea?", "agent": "helper"}, "Green, surely."),
    "skill": ({"name": "brew"}, "Boil the water first."),
    "sessions_list": ({}, "sessions"),
    "sessions_spawn": ({"prompt": "Which tea?", "agent": "general"}, "sub/"),
    "agents_list": ({}, "general"),
    "git_status": ({}, "main"),
    "git_diff": ({}, "diff"),
    "git_commit": ({"message": "Add cups", "all": True}, "Add cups"),
    "git_log": ({}, "Add tea"),
    "git_branch": ({}, "main"),
    "apply_patch": ({"patch": PATCH}, "new.txt"),
    "browser": ({"action": "screenshot"}, "about:blank"),
    "canvas": ({"title": "Teas"}, "main.html"),
    "nodes": ({}, "no other machines are known"),
    "image": ({"action": "metadata", "path": "dot.png"}, "png"),
}
ANSWERED_WITH_A_REASON: dict[str, tuple[dict[str, Any], str]] = {
    "webfetch": ({"url": "http://127.0.0.1:1/"}, "public"),
    "question": ({"prompt": "Which tea?"}, "no user can be asked here"),
    "sessions_history": ({"session": "nowhere"}, "there is no session"),
    "sessions_send": ({"session": "sub/x/1/y", "message": "Go on."}, "there is no session"),
    "session_status": ({"session": "nowhere"}, "there is no session"),
}


@pytest.fixture
def desk(inside: Inside, tmp_path: Path) -> Inside:
    """A project with some files, a skill and a repository, in which everything is granted."""
    work = started(tmp_path / "work")
    (work / "code.py").write_text("def steep(minutes):\n    return minutes\n")
    (work / "notes.md").write_text("# Notes\nsteep for three minutes\n")
    (work / "dot.png").write_bytes(PIXEL)
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "Add code")
    (work / "tea.txt").write_text("green\nblack\nwhite\n")
    page = tmp_path / "skills" / "brew"
    page.mkdir(parents=True)
    (page / "SKILL.md").write_text("---\nname: brew\ndescription: How to brew.\n---\nBoil the water first.\n")
    (tmp_path / "toolwire.toml").write_text(SETTINGS)
    return inside


def test_the_thirty_desktop_tools_are_there_when_the_settings_or_a_flag_name_them(desk: Inside) -> None:
    assert len(DESKTOP) == 30
    listed = {tool["name"]: tool for tool in desk("tools", "list", "--json").json}
    assert set(DESKTOP) <= listed.keys()
    assert all(listed[name]["offered"] for name in DESKTOP)
    Path("toolwire.toml").unlink()
    by_flag = {tool["name"] for tool in desk("tools", "list", "--json", "--tools", "desktop").json}
    assert set(DESKTOP) <= by_flag


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("browser", {"browser"}),
        ("canvas", {"canvas"}),
        ("nodes", {"nodes"}),
        ("image", {"image"}),
        ("search", {"websearch"}),
        ("skills", {"skill"}),
        ("teamwork", {"task", "sessions_list", "sessions_spawn", "session_status", "agents_list"}),
        ("models", {"openrouter", "venice", "ollama_local"}),
        ("all", {*DESKTOP, "openrouter", "json-transform", "job_start", "search_code", "read_file"}),
    ],
)
def test_every_part_has_a_name(inside: Inside, group: str, names: set[str]) -> None:
    before = {tool["name"] for tool in inside("tools", "list", "--json").json}
    listed = {tool["name"] for tool in inside("tools", "list", "--json", "--tools", group).json}
    assert names <= listed - before | ({"read"} & before)


def test_a_group_that_is_not_there_is_answered_with_the_nearest(inside: Inside) -> None:
    ran = inside("tools", "list", "--tools", "desktpo")
    assert ran.code == Exit.USAGE
    assert "did you mean desktop?" in ran.err


@pytest.mark.parametrize("name", CALLS)
def test_each_desktop_tool_can_be_called(desk: Inside, name: str) -> None:
    arguments, expected = CALLS[name]
    with scripted("Green, surely.", "Green, surely.") as script:
        _point_at(script.url)
        ran = desk("call", name, "--args", json.dumps(arguments), "--json")
    assert ran.code == Exit.DONE, ran.out
    assert expected in ran.out.replace("\\\\", "\\").replace('\\"', '"') or expected in json.dumps(ran.json), ran.out


@pytest.mark.parametrize("name", ANSWERED_WITH_A_REASON)
def test_where_nothing_can_be_done_a_desktop_tool_says_why(desk: Inside, name: str) -> None:
    arguments, expected = ANSWERED_WITH_A_REASON[name]
    ran = desk("call", name, "--args", json.dumps(arguments), "--json")
    assert ran.code == Exit.FAILED
    assert expected in ran.json["error"]["message"]


def test_nothing_of_the_desktop_is_left_out_here() -> None:
    assert {*CALLS, *ANSWERED_WITH_A_REASON} == set(DESKTOP)


def test_a_model_sets_another_one_to_work_and_hears_its_answer(desk: Inside) -> None:
    asks = [("task", {"prompt": "Which tea?", "agent": "helper"})]
    with scripted(asks, "Green, surely.", "It is green.") as script:
        _point_at(script.url)
        ran = desk("ask", "Ask the helper.", "--base-url", script.url, "--json")
    assert ran.json["answer"] == "It is green.", ran.err
    assert "Which tea?" in json.dumps(script.requests[1]["messages"])
    assert "Green, surely." in json.dumps(script.requests[2]["messages"])


def test_a_model_tool_asks_the_configured_model_where_it_is_served(inside: Inside) -> None:
    with scripted("Three minutes.") as script:
        lines = f'groups = ["models"]\nmodels = ["venice tea-model at {script.url}"]\n'
        Path("toolwire.toml").write_text(f'[tools]\n{lines}[grant]\npermissions = ["network"]\n')
        asked = json.dumps({"messages": [{"role": "user", "content": "How long?"}]})
        ran = inside("call", "venice", "--args", asked, "--json", "--yes")
        assert ran.json["structured"]["content"] == "Three minutes.", ran.out
        assert script.requests[0]["model"] == "tea-model"
    refused = inside("call", "openrouter", "--args", asked, "--json", "--yes")
    assert "tools.models" in refused.json["error"]["message"]


def _point_at(url: str) -> None:
    """Let a sub-agent's model be the scripted one."""
    profile = f'[profiles.helper]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{url}"\n'
    Path("toolwire.toml").write_text(SETTINGS.replace(f'model = "{MODEL}"', 'profile = "helper"') + profile)
