"""Grants that are taken back while a turn waits: `call`, `ask` and `chat` go on with what still holds."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.conftest import Inside
from tests.cli.painter import GRANTED, LESS, MODULE, TOOLS, waiting
from tests.cli.stage import Stage, scripted
from toolwire import agent
from toolwire.cli.entry.exits import Exit
from toolwire.hub import resuming


@pytest.mark.parametrize("what", LESS)
def test_T79_an_approved_call_is_not_run_once_its_right_was_taken_back(
    painter: Inside, tmp_path: Path, what: str
) -> None:
    assert painter("call", "paint", "colour=red").code == Exit.WAITING
    turn, asked = waiting(painter)
    assert painter("approve", asked).code == Exit.DONE
    (tmp_path / "toolwire.toml").write_text(LESS[what], encoding="utf-8")
    told = painter("call", "--resume", turn)
    assert (told.code, "not granted any more" in told.err) == (Exit.USAGE, True)
    assert f"toolwire call --resume {turn} --" in told.err
    assert not (tmp_path / "painted").exists()

    (tmp_path / "toolwire.toml").write_text(GRANTED, encoding="utf-8")  # nothing was settled meanwhile
    assert painter("call", "--resume", turn).code == Exit.DONE
    assert (tmp_path / "painted").read_text() == "red\n"


def test_T79_a_question_goes_on_with_what_still_holds(painter: Inside, tmp_path: Path) -> None:
    with scripted([("paint", {"colour": "red"})], [("paint", {"colour": "blue"})], "I may not paint.") as model:
        assert painter("ask", "Paint", *model.flags).code == Exit.WAITING
        turn, asked = waiting(painter)
        (tmp_path / "toolwire.toml").write_text(LESS["permission"], encoding="utf-8")
        assert painter("ask", "--resume", turn, *model.flags).code == Exit.USAGE
        assert painter("approve", asked, "--deny").code == Exit.DONE
        ended = painter("ask", "--resume", turn, *model.flags)
    assert (ended.code, ended.out) == (Exit.DONE, "I may not paint.\n")
    assert "it needs brushes" in str(model.requests[-1]["messages"])
    assert not (tmp_path / "painted").exists()


def test_T79_control_one_who_goes_by_what_was_granted_before_runs_it(painter: Inside, tmp_path: Path) -> None:
    assert painter("call", "paint", "colour=red").code == Exit.WAITING
    turn, asked = waiting(painter)
    assert painter("approve", asked).code == Exit.DONE
    (tmp_path / "toolwire.toml").write_text(LESS["permission"], encoding="utf-8")
    with (
        patch.object(resuming, "lacks", lambda *_: ""),
        patch.object(agent, "grant_of_resumed", lambda had, _now: had),
    ):
        assert painter("call", "--resume", turn).code == Exit.DONE

    assert (tmp_path / "painted").read_text() == "red\n"


def test_T79_control_what_still_holds_runs(painter: Inside, tmp_path: Path) -> None:
    with scripted([("paint", {"colour": "red"})], "It is red.") as model:
        assert painter("ask", "Paint", *model.flags).code == Exit.WAITING
        turn, asked = waiting(painter)
        assert painter("approve", asked).code == Exit.DONE
        assert painter("ask", "--resume", turn, *model.flags).out == "It is red.\n"
    assert (tmp_path / "painted").read_text() == "red\n"


def test_what_flags_granted_is_in_the_record_and_needs_no_flags_again(painter: Inside, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text(MODULE, encoding="utf-8")
    flags = ["--tier", "run", "--allow", "brushes"]
    waits = painter("call", "paint", "colour=red", *flags)
    turn, asked = waiting(painter)
    line = f"toolwire call --resume {turn}\n"
    assert line in waits.err
    yes = painter("approve", asked)
    assert line in yes.out + yes.err
    assert painter("call", "--resume", turn).code == Exit.DONE
    assert (tmp_path / "painted").read_text() == "red\n"


def test_where_the_record_lies_is_in_the_commands_that_answer_and_go_on(painter: Inside) -> None:
    waits = painter("call", "paint", "colour=red", "--home", "my record")
    [asked] = painter("approvals", "--json", "--home", "my record").json
    assert f"toolwire approve {asked['id']} --home 'my record'" in waits.err
    yes = painter("approve", asked["id"], "--home", "my record")
    line = f"toolwire call --resume {asked['turn_id']} --home 'my record'"
    assert (line in waits.err, line in yes.err) == (True, True)


def test_F1_a_call_goes_on_with_the_tools_that_it_began_with(painter: Inside, tmp_path: Path) -> None:
    """Neither the tools nor the folder of the flags have to be given again."""
    (tmp_path / "toolwire.toml").write_text('[grant]\ntier = "run"\npermissions = ["file_write"]\n', encoding="utf-8")
    write = ["call", "write", "path=a.txt", "content=hi", "--tools", "coding"]
    assert painter(*write).code == Exit.WAITING
    turn, asked = waiting(painter)
    assert painter("approve", asked).code == Exit.DONE
    assert painter("call", "--resume", turn).code == Exit.DONE
    assert (tmp_path / "a.txt").read_text() == "hi"


@pytest.mark.parametrize("verb", ["call", "ask"])
def test_a_call_that_lacks_its_tool_is_not_settled_and_goes_on_once_the_tool_is_back(
    painter: Inside, tmp_path: Path, verb: str
) -> None:
    with scripted([("paint", {"colour": "red"})], "It is red.") as model:
        begin = ["call", "paint", "colour=red"] if verb == "call" else ["ask", "Paint", *model.flags]
        assert painter(*begin).code == Exit.WAITING
        turn, asked = waiting(painter)
        assert painter("approve", asked).code == Exit.DONE
        (tmp_path / "toolwire.toml").write_text(
            GRANTED.replace(MODULE, f'{MODULE}exclude = ["paint"]\n'), encoding="utf-8"
        )
        told = painter(verb, "--resume", turn)
        assert (told.code, "there is no such tool now" in told.err) == (Exit.USAGE, True), told.err
        assert painter("approve", asked).code != Exit.DONE  # it is decided, and stays so
        (tmp_path / "toolwire.toml").write_text(GRANTED, encoding="utf-8")
        assert painter(verb, "--resume", turn).code == Exit.DONE
    assert (tmp_path / "painted").read_text() == "red\n"


def test_a_resumed_turn_has_no_tools_that_it_began_without(painter: Inside, tmp_path: Path) -> None:
    with scripted([("paint", {"colour": "red"})], [("read", {"path": "toolwire.toml"})], "Done.") as model:
        assert painter("ask", "Paint", *model.flags).code == Exit.WAITING
        turn, asked = waiting(painter)
        assert painter("approve", asked).code == Exit.DONE
        assert painter("ask", "--resume", turn, "--tools", "desktop").code == Exit.DONE
        before, after = ({tool["function"]["name"] for tool in one["tools"]} for one in model.requests[:2])
    assert after == before


def test_a_turn_goes_on_from_another_folder_of_the_project(stage: Stage) -> None:
    stage.module("brushwork", TOOLS)
    stage.settings(GRANTED)
    (stage.folder / "sub").mkdir()
    assert stage.run("call", "paint", "colour=red").code == Exit.WAITING
    [asked] = stage.run("approvals", "--json").json
    assert stage.run("approve", asked["id"]).code == Exit.DONE
    environ = {"HOME": str(stage.folder), "TOOLWIRE_TRUST": str(stage.folder)}
    sub = replace(stage, folder=stage.folder / "sub", environ=environ)
    told = sub.run("explain", "read", "path=brushwork.py", "--turn", asked["turn_id"])
    assert "It may run" in told.out
    assert sub.run("call", "--resume", asked["turn_id"]).code == Exit.DONE


def test_T79_a_turn_of_a_chat_goes_on_with_what_still_holds(stage: Stage) -> None:
    stage.module("brushwork", TOOLS)
    stage.settings(GRANTED)
    with scripted([("paint", {"colour": "red"})], "Never.") as model:
        chat = stage.run("chat", *model.flags, stdin=b"Paint\n")
        [asked] = stage.run("approvals", "--json").json
        assert asked["id"] in chat.err
        stage.settings(LESS["tier"])
        assert stage.run("approve", asked["id"]).code == Exit.DONE
        assert stage.run("ask", "--resume", asked["turn_id"], *model.flags).code == Exit.USAGE
    assert not (stage.folder / "painted").exists()


FILES = '[tools]\ngroups = ["coding", "shell"]\n[grant]\ntier = "run"\npermissions = ["file_write", "shell"]\n'
MAKES = {"write": ["path=made", "content=x"], "bash": ["command=echo x > made"]}


@pytest.fixture
def folders(inside: Inside, tmp_path: Path) -> Inside:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "toolwire.toml").write_text(FILES, encoding="utf-8")
    return inside


@pytest.mark.parametrize("tool", MAKES)
def test_T136_a_call_that_was_approved_for_one_folder_does_not_run_in_another(
    folders: Inside, tmp_path: Path, tool: str
) -> None:
    assert folders("call", tool, *MAKES[tool], "--root", "one", "--root", "two").code == Exit.WAITING
    turn, asked = waiting(folders)
    assert folders("approve", asked).code == Exit.DONE

    told = folders("call", "--resume", turn, "--root", "two")

    assert (told.code, f"toolwire call --resume {turn}\n" in told.err) == (Exit.USAGE, True)
    assert not [*tmp_path.rglob("made")]


def test_T136_the_question_itself_is_bound_to_the_folders(folders: Inside) -> None:
    digests = []
    for roots in (["one", "two"], ["two"]):
        flags = [word for root in roots for word in ("--root", root)]
        assert folders("call", "write", *MAKES["write"], *flags).code == Exit.WAITING
        _, asked = waiting(folders)
        digests.append(folders("approve", asked, "--deny", "--json").json["digest"])
    assert digests[0] != digests[1]


@pytest.mark.parametrize("again", [True, False], ids=["given", "from the record"])
@pytest.mark.parametrize("tool", MAKES)
def test_T136_control_with_the_same_folders_it_runs_in_the_first(
    folders: Inside, tmp_path: Path, tool: str, again: bool
) -> None:
    roots = ["--root", "one", "--root", "two"]
    assert folders("call", tool, *MAKES[tool], *roots).code == Exit.WAITING
    turn, asked = waiting(folders)
    assert folders("approve", asked).code == Exit.DONE
    assert folders("call", "--resume", turn, *(roots if again else [])).code == Exit.DONE
    assert [*tmp_path.rglob("made")] == [tmp_path / "one/made"]


@pytest.mark.parametrize("verb", ["call", "ask"])
def test_flags_of_a_resumed_turn_are_in_the_command_that_goes_on(painter: Inside, tmp_path: Path, verb: str) -> None:
    """The record keeps the flags with which the turn began, so later ones have to be given again."""
    with scripted([("paint", {"colour": "red"})], "It is red.") as model:
        begin = ["call", "paint", "colour=red"] if verb == "call" else ["ask", "Paint", *model.flags]
        assert painter(*begin).code == Exit.WAITING
        turn, asked = waiting(painter)
        (tmp_path / "toolwire.toml").write_text(LESS["tier"], encoding="utf-8")
        line = f"toolwire {verb} --resume {turn} --tier run --allow brushes"
        waits = painter(*line.split()[1:])
        assert (waits.code, f"Then go on with: {line}\n" in waits.err) == (Exit.WAITING, True), waits.err
        assert painter("approve", asked).code == Exit.DONE
        assert painter(*line.split()[1:]).code == Exit.DONE
    assert (tmp_path / "painted").read_text() == "red\n"
