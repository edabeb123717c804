"""Projects at the terminal: what one of them keeps, the commands do not find for another."""

from pathlib import Path

import pytest

from toolwire.cli.entry.exits import Exit

from .conftest import Inside
from .stage import scripted

TOOLS = '''
from toolwire import Tier, tool

@tool(tier=Tier.RUN)
def paint(colour: str) -> str:
    """Paint the door."""
    return f"it is {colour}"

@tool
def long() -> str:
    """Say much."""
    return "word " * 100_000
'''
MINE, OTHER = ("--project", "tenant-a"), ("--project", "tenant-b")


@pytest.fixture
def painter(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    (tmp_path / "decorating.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "toolwire.toml").write_text(
        '[tools]\nmodules = ["decorating:paint", "decorating:long"]\ngroups = ["coding"]\n[grant]\ntier = "run"\n',
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return inside


def test_T62_a_handle_of_another_project_leads_nowhere(painter: Inside) -> None:
    handle = painter("call", "long", *MINE, "--json").json["handle"]

    for project in (OTHER, ()):
        refused = painter("call", "more", f"handle={handle}", *project, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (Exit.FAILED, "not_found")
        assert "nothing is kept" in refused.json["text"]
    read = painter("call", "more", f"handle={handle}", *MINE, "--json").json
    assert read["text"].startswith("word word")


@pytest.mark.parametrize("project", [OTHER, ()], ids=["another", "default"])
def test_T62_what_waits_in_another_project_is_neither_seen_nor_answered(
    painter: Inside, project: tuple[str, ...]
) -> None:
    waits = painter("call", "paint", "colour=red", *MINE)
    [asked] = painter("approvals", *MINE, "--json").json

    assert waits.code == Exit.WAITING
    assert "--project tenant-a" in waits.err
    assert painter("approvals", "--all", *project, "--json").json == []
    assert painter("approve", asked["id"], *project).code == Exit.NOT_FOUND
    assert painter("approve", asked["id"], "--revoke", *project).code == Exit.NOT_FOUND
    assert painter("call", "--resume", asked["turn_id"], *project).code == Exit.NOT_FOUND
    assert painter("call", "--resume", *project).code == Exit.NOT_FOUND
    assert painter("status", "--json", *project).json["waiting"] == 0
    assert painter("logs", "--json", *project).json == []
    assert painter("logs", "--turn", asked["turn_id"], *project).code == Exit.NOT_FOUND
    assert painter("explain", "--call", asked["call_id"], *project).code == Exit.NOT_FOUND
    assert painter("metrics", "--json", *project).json["tools"] == []
    assert painter("approve", asked["id"], *MINE).code == Exit.DONE
    assert painter("call", "--resume", *MINE).code == Exit.DONE
    assert [tool["tool"] for tool in painter("metrics", "--json", *MINE).json["tools"]] == ["paint"]


def test_T62_a_thread_of_the_same_name_is_another_conversation(painter: Inside) -> None:
    with scripted("Noted.", "Nothing.", "Swordfish.") as model:
        painter("ask", "The word is swordfish.", "--thread", "work", *MINE, *model.flags)
        painter("ask", "Which word?", "--thread", "work", *OTHER, *model.flags)
        painter("ask", "Which word?", "--thread", "work", *MINE, *model.flags)

    assert ["swordfish" in str(request["messages"]) for request in model.requests] == [True, False, True]
