"""`toolwire run`: an approval by any way is enough for a turn to continue."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.painter import GRANTED, LESS, MODULE, TOOLS, waiting
from tests.cli.stage import LIMIT_S, Stage, scripted
from toolwire.assemble.interaction import Unattended
from toolwire.cli.entry.exits import Exit
from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code


@pytest.mark.parametrize("verb", ["call", "ask"])
def test_an_approved_turn_continues_with_the_flags_that_it_began_with(
    painter: Inside, tmp_path: Path, verb: str
) -> None:
    (tmp_path / "toolwire.toml").write_text(MODULE, encoding="utf-8")
    flags = ["--tier", "run", "--allow", "brushes"]
    with scripted([("paint", {"colour": "red"})], "It is red.") as model:
        begin = ["call", "paint", "colour=red"] if verb == "call" else ["ask", "Paint", *model.flags]
        assert painter(*begin, *flags).code == Exit.WAITING
        turn, asked = waiting(painter)
        idle = painter("run", "--once", "--json")
        assert (idle.code, idle.out) == (Exit.DONE, "")
        assert painter("approve", asked).code == Exit.DONE

        ran = painter("run", "--once", "--json")

    assert (ran.code, ran.json["turn_id"], ran.json["state"]) == (Exit.DONE, turn, "ended"), ran.err
    assert ran.json["answer"] == ("it is red" if verb == "call" else "It is red.")
    assert (tmp_path / "painted").read_text() == "red\n"
    assert painter("run", "--once", "--json").out == ""


@pytest.mark.parametrize("what", [*LESS, "tool"])
def test_what_was_taken_back_leaves_the_turn_and_the_approval_as_they_are(
    painter: Inside, tmp_path: Path, what: str
) -> None:
    assert painter("call", "paint", "colour=red").code == Exit.WAITING
    _, asked = waiting(painter)
    assert painter("approve", asked).code == Exit.DONE
    gone = GRANTED.replace(MODULE, f'{MODULE}exclude = ["paint"]\n')
    (tmp_path / "toolwire.toml").write_text(LESS.get(what, gone), encoding="utf-8")
    told = painter("run", "--once", "--json")
    assert (told.code, told.json["state"], "Nothing was run" in told.json["error"]) == (Exit.FAILED, "failed", True)

    (tmp_path / "toolwire.toml").write_text(GRANTED, encoding="utf-8")
    assert painter("run", "--once", "--json").json["state"] == "ended"
    assert (tmp_path / "painted").read_text() == "red\n"


def test_the_printed_command_tells_the_outcome_of_a_call_that_a_runner_has_ended_meanwhile(painter: Inside) -> None:
    assert painter("call", "paint", "colour=red").code == Exit.WAITING
    turn, asked = waiting(painter)
    assert painter("approve", asked).code == Exit.DONE
    assert painter("run", "--once").code == Exit.DONE
    for verb in ("call", "ask"):
        told = painter(verb, "--resume", turn)
        assert (told.code, "has ended" in told.err, "it is red" in told.err) == (Exit.FAILED, True, True), told.err


def test_a_turn_can_be_canceled_for_good(painter: Inside, tmp_path: Path) -> None:
    assert painter("call", "paint", "colour=red").code == Exit.WAITING
    turn, asked = waiting(painter)
    for _ in range(2):
        assert painter("run", "--cancel", turn).code == Exit.DONE
    assert painter("approve", asked).code != Exit.DONE
    assert painter("call", "--resume", turn).code != Exit.DONE
    assert not (tmp_path / "painted").exists()


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--cancel", "nowhere"], Exit.NOT_FOUND, "nowhere"),
        (["--at-once", "0"], Exit.USAGE, "at-once"),
    ],
)
def test_wrong_use_is_told(painter: Inside, words: list[str], code: Exit, told: str) -> None:
    ran = painter("run", "--once", *words)
    assert (ran.code, told in ran.err) == (code, True), ran.err


def test_a_store_that_does_not_last_has_nothing_to_run(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[store]\nkind = "memory"\n', encoding="utf-8")
    ran = inside("run", "--once")
    assert (ran.code, "nothing to run" in ran.err) == (Exit.USAGE, True)


def test_a_running_runner_continues_a_turn_that_is_approved_in_another_process(stage: Stage) -> None:
    stage.module("brushwork", TOOLS)
    stage.settings(GRANTED)
    assert stage.run("call", "paint", "colour=red").code == Exit.WAITING
    [asked] = stage.run("approvals", "--json").json
    runner = stage.start("run", "--json")
    assert stage.run("approve", asked["id"]).code == Exit.DONE
    assert runner.stdout is not None
    line = runner.stdout.readline()
    assert b'"ended"' in line
    assert (stage.folder / "painted").read_text() == "red\n"


def test_what_a_command_wrote_is_shown_as_call_shows_it(stage: Stage) -> None:
    shell = ["--tools", "shell", "--tier", "run", "--allow", "shell"]
    (stage.folder / "old.txt").write_text("old\n", encoding="utf-8")
    assert stage.run("call", "bash", "command=rm old.txt; echo gone", *shell).code == Exit.WAITING
    assert stage.run("approve").code == Exit.DONE

    ran = stage.run("run", "--once")

    assert (ran.code, ran.out) == (Exit.DONE, "gone\n")
    assert "success in" in ran.err


@pytest.mark.anyio
async def test_a_question_to_a_user_who_is_not_there_fails_as_its_protocol_says() -> None:
    with pytest.raises(ToolFailure, match="no user is present") as failed:
        await Unattended().answer("Which colour?", ["red", "blue"])
    assert failed.value.code is Code.UNAVAILABLE


@pytest.mark.feature("F175")
def test_a_turn_that_asks_an_expert_is_run_to_its_end_with_it(inside: Inside) -> None:
    """The expert is asked at the address that the flags of the turn named, which only its record knows."""
    asks = [("ask_expert", {"expert_profile": "general", "question": "How many?"})]
    with scripted(asks, "Three.", "They are three.") as model:
        asked = inside("ask", "Count", *model.flags, "--tools", "orchestration", "--allow", "session")
        ran = inside("run", "--once")
    status = inside("status", "--json")

    assert (asked.code, ran.code) == (Exit.WAITING, Exit.DONE)
    assert "of a sub-agent" in asked.err
    assert "toolwire run" in asked.err
    assert "They are three." in ran.out
    assert [turn["state"] for turn in status.json["newest"]] == ["ended", "ended"]


def test_a_runner_ends_by_a_signal_as_by_ctrl_c(stage: Stage) -> None:
    runner = stage.start("run")
    assert runner.stderr is not None
    assert b"Waiting for turns" in runner.stderr.readline()
    runner.terminate()

    _, said = runner.communicate(timeout=LIMIT_S)
    assert (runner.returncode, said) == (130, b"Interrupted.\n")


def test_a_runner_of_all_projects_goes_on_with_each_turn_in_its_own_folder(painter: Inside, tmp_path: Path) -> None:
    for project in ("a", "b"):
        assert painter("call", "paint", "colour=red", "--project", project).code == Exit.WAITING
        [asked] = painter("approvals", "--json", "--project", project).json
        assert painter("approve", asked["id"], "--project", project).code == Exit.DONE
    (tmp_path / "projects" / "b").mkdir(parents=True)
    (tmp_path / "projects" / "b" / "toolwire.toml").write_text('[grant]\ntier = "walk"\n')

    assert painter("run", "--once", "--json").out == ""
    ran = painter("run", "--once", "--json", "--all-projects")

    said = {one["project"]: one for one in map(json.loads, ran.out.splitlines())}
    assert (said["a"]["state"], said["a"]["answer"]) == ("ended", "it is red")
    assert (said["b"]["state"], "Nothing was run" in said["b"]["error"]) == ("failed", True)
    assert (tmp_path / "painted").read_text() == "red\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--projects", "a", "--all-projects"), "give one of them"),
        (("--projects", "a,b c"), "letters, digits"),
        (("--projects", "a,*"), "leave out the others"),
        (("--projects", "../a"), "letters, digits"),
    ],
)
def test_wrong_names_of_projects_are_told(painter: Inside, words: tuple[str, ...], told: str) -> None:
    ran = painter("run", "--once", *words)
    assert (ran.code, told in ran.err) == (Exit.USAGE, True), ran.err
