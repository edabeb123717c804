"""Ids that people type: a part that fits one, and none at all where there is only one to choose."""

import pytest

from tests.cli.stage import Stage, Terminal
from toolwire.cli.entry.exits import Exit

ERASER = """
from toolwire import tool

@tool(requires_confirmation=True)
def erase(path: str) -> str:
    "Erase a file for good."
    with open("ledger", "a") as ledger:
        ledger.write(path + "\\n")
    return "erased " + path
"""


@pytest.fixture
def erasing(stage: Stage) -> Stage:
    stage.settings('[tools]\nmodules = ["mine:erase"]\n')
    stage.module("mine", ERASER)
    return stage


def pending(stage: Stage, path: str) -> dict[str, str]:
    assert stage.run("call", "erase", f"path={path}").code == Exit.WAITING
    card: dict[str, str] = stage.run("approvals", "--json").json[0]
    return card


def ledger(stage: Stage) -> list[str]:
    path = stage.folder / "ledger"
    return path.read_text().split() if path.exists() else []


def test_the_only_pending_approval_needs_no_id(erasing: Stage) -> None:
    pending(erasing, "a")
    ran = erasing.run("approve")
    assert (ran.code, "granted" in ran.out) == (Exit.DONE, True)
    assert erasing.run("call", "--resume").code == Exit.DONE
    assert ledger(erasing) == ["a"]
    nothing = erasing.run("approve")
    assert (nothing.code, "no approvals are pending" in nothing.err) == (Exit.NOT_FOUND, True)


def test_where_several_are_pending_they_are_listed(erasing: Stage) -> None:
    ids = {pending(erasing, path)["id"] for path in "ab"}
    ran = erasing.run("approve")
    assert ran.code == Exit.USAGE
    assert all(one in ran.err for one in ids)


def test_a_part_of_an_id_is_enough_where_it_fits_one(erasing: Stage) -> None:
    first, second = pending(erasing, "a"), pending(erasing, "b")
    both = erasing.run("approve", first["id"][:4])
    assert (both.code, "fits 2 approvals" in both.err, first["id"] in both.err) == (Exit.USAGE, True, True)
    assert erasing.run("approve", second["id"][-12:].upper()).code == Exit.DONE
    turn = second["turn_id"]
    assert [row["turn_id"] for row in erasing.run("logs", "--turn", turn[-12:], "--json").json] == [turn, turn]
    assert [one["id"] for one in erasing.run("approvals", "--turn", turn[-12:], "--all", "--json").json] == [
        second["id"]
    ]
    assert erasing.run("call", "--resume", turn[-12:]).code == Exit.DONE
    assert ledger(erasing) == ["b"]
    [call] = [row["call_id"] for row in erasing.run("logs", "--json").json if row["status"] == "success"]
    assert "erase" in erasing.run("explain", "--call", call[:-2]).out


@pytest.mark.parametrize(
    "words",
    [
        ["approve", "ffffffff"],
        ["logs", "--turn", "ffffffff"],
        ["call", "--resume", "ffffffff"],
        ["ask", "--resume", "ff"],
    ],
)
def test_a_part_that_fits_nothing_is_not_found(erasing: Stage, words: list[str]) -> None:
    pending(erasing, "a")
    assert erasing.run(*words).code == Exit.NOT_FOUND


def test_at_a_terminal_the_only_one_is_shown_before_it_is_approved(erasing: Stage) -> None:
    pending(erasing, "a")
    for answer, state in (("n", "open"), ("y", "granted")):
        with Terminal(erasing, "approve") as terminal:
            terminal.wait_for('"path": "a"')
            terminal.wait_for("[y/N]")
            terminal.type(f"{answer}\n")
            terminal.end()
        [card] = erasing.run("approvals", "--all", "--json").json
        assert card["state"] == state
