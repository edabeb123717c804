"""Every command that is printed while a turn waits can be pasted: it is whole, and the approved call runs."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cli.stage import MODEL, Ran, Stage, scripted
from toolwire.cli.entry.exits import Exit
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import TurnStats
from toolwire.record.sqlite import SqliteStore

GO_ON = re.compile(r"[Gg]o on with(?: it)?: (toolwire .*)")
ANSWER = re.compile(r"^ *(toolwire approve .*?)(?:    \(or --deny\))?$", re.MULTILINE)
WRITES = "echo done > made"


@pytest.fixture
def granted(stage: Stage, tmp_path: Path) -> list[str]:
    """Flags without which the call cannot run: another folder, its tools, a place for the record."""
    (stage.folder / "elsewhere").mkdir()
    home = tmp_path / "record"
    home.mkdir()
    return [
        *("--home", str(home), "--root", "elsewhere", "--tools", "shell", "--tier", "run"),
        *("--allow", "shell"),
    ]


def paste(stage: Stage, line: str) -> Ran:
    program, *words = shlex.split(line)
    assert program == "toolwire"
    return stage.run(*words)


def approve(stage: Stage, waits: Ran) -> Ran:
    [line] = ANSWER.findall(waits.err)
    return paste(stage, line)


@pytest.mark.parametrize("source", ["the call", "the approval"])
@pytest.mark.parametrize("project", ["default", "its own"])
def test_T115_lines_of_a_call_can_be_pasted(stage: Stage, granted: list[str], source: str, project: str) -> None:
    waits = stage.run("call", "bash", f"command={WRITES}", *granted, "--project", project)
    assert waits.code == Exit.WAITING, waits.err
    yes = approve(stage, waits)
    [line] = GO_ON.findall(waits.err if source == "the call" else yes.err)

    ran = paste(stage, line)

    assert ran.code == Exit.DONE, ran.err
    assert (stage.folder / "elsewhere/made").read_text() == "done\n"


@pytest.mark.parametrize("source", ["the question", "the approval"])
def test_T115_lines_of_a_question_can_be_pasted(stage: Stage, granted: list[str], source: str) -> None:
    with scripted([("bash", {"command": WRITES})], "It is done.") as script:
        model = ["--model", MODEL, "--base-url", script.url]
        waits = stage.run("ask", "make it", *model, *granted)
        assert waits.code == Exit.WAITING, waits.err
        yes = approve(stage, waits)
        [line] = GO_ON.findall(waits.err if source == "the question" else yes.err)

        ran = paste(stage, line)

    assert (ran.code, ran.out) == (Exit.DONE, "It is done.\n"), ran.err
    assert (stage.folder / "elsewhere/made").read_text() == "done\n"


def test_T115_control_a_line_for_the_wrong_verb_runs_nothing_and_the_right_one_is_told(
    stage: Stage, granted: list[str]
) -> None:
    waits = stage.run("call", "bash", f"command={WRITES}", *granted)
    yes = approve(stage, waits)
    [line] = GO_ON.findall(yes.err)
    turn = shlex.split(line)[3]

    other = stage.run("ask", "--resume", turn, "--home", granted[1], "--model", MODEL)

    assert other.code == Exit.USAGE
    [again] = GO_ON.findall(other.err)
    assert again == line
    assert paste(stage, again).code == Exit.DONE


def test_T115_a_password_in_an_address_is_not_kept_with_the_flags(stage: Stage, granted: list[str]) -> None:
    with scripted([("bash", {"command": WRITES})]) as script:
        address = script.url.replace("://", "://me:hunter2@")
        waits = stage.run("ask", "make it", "--model", MODEL, "--base-url", address, *granted)
    assert waits.code == Exit.WAITING, waits.err
    assert "hunter2" not in approve(stage, waits).err
    assert not [file for file in Path(granted[1]).rglob("*") if file.is_file() and b"hunter2" in file.read_bytes()]


async def end_turn(home: Path, turn_id: str) -> None:
    """As another process does that goes on with the turn and finds its deadline over."""
    async with await SqliteStore.at(home) as store:
        kept = await store.resume(turn_id)
        await store.end(replace(kept.opening, ending=Ending(EndReason.DEADLINE, "")), TurnStats())


@pytest.mark.parametrize("word", [[], ["--deny"], ["--turn"]])
def test_T115_an_approval_for_a_turn_that_has_ended_is_refused(
    stage: Stage, granted: list[str], word: list[str]
) -> None:
    home = Path(granted[1])
    stage.run("call", "bash", f"command={WRITES}", *granted)
    [asked] = stage.run("approvals", "--json", "--home", str(home)).json
    asyncio.run(end_turn(home, asked["turn_id"]))

    told = stage.run("approve", asked["id"], "--home", str(home), *word)

    assert (told.code, f"turn '{asked['turn_id']}' has ended" in told.err) == (Exit.FAILED, True), told.err
    assert "granted" not in told.out


def test_questions_of_a_turn_that_has_ended_are_not_listed_as_open(stage: Stage, granted: list[str]) -> None:
    home = Path(granted[1])
    stage.run("call", "bash", f"command={WRITES}", *granted)
    [asked] = stage.run("approvals", "--json", "--home", str(home)).json
    assert stage.run("status", "--json", "--home", str(home)).json["waiting"] == 1
    asyncio.run(end_turn(home, asked["turn_id"]))

    assert stage.run("approvals", "--json", "--home", str(home)).json == []
    assert stage.run("status", "--json", "--home", str(home)).json["waiting"] == 0
    [kept] = stage.run("approvals", "--all", "--json", "--home", str(home)).json
    assert (kept["id"], kept["state"]) == (asked["id"], "expired")
    assert "no approvals are pending" in stage.run("approve", "--home", str(home)).err
