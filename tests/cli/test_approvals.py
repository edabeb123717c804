"""A turn without a user waits for an approval that may come from any process."""

import json
import os
from pathlib import Path

import pytest

from toolwire.cli.entry.exits import Exit

from .conftest import Inside

TOOLS = '''
from toolwire import Tier, tool

@tool(tier=Tier.RUN)
def paint(colour: str) -> str:
    """Paint the door."""
    with open("painted", "a") as file:
        file.write(colour + "\\n")
    return f"it is {colour}"
'''


@pytest.fixture
def painter(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    (tmp_path / "painting.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "toolwire.toml").write_text(
        '[tools]\nmodules = ["painting:paint"]\n[grant]\ntier = "run"\n', encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert os.isatty(0) is False
    return inside


def test_a_single_call_waits_is_approved_with_other_arguments_and_goes_on(painter: Inside, tmp_path: Path) -> None:
    waits = painter("call", "paint", "colour=red")
    assert waits.code == Exit.WAITING
    [asked] = painter("approvals", "--json").json
    assert (asked["tool"], asked["arguments"], asked["state"]) == ("paint", {"colour": "red"}, "open")
    assert asked["id"] in waits.err
    yes = painter("approve", asked["id"], "--args", '{"colour": "blue"}', "--json")
    assert (yes.code, yes.json["state"]) == (Exit.DONE, "granted")
    assert painter("call", "--resume").code == Exit.DONE
    assert (tmp_path / "painted").read_text(encoding="utf-8") == "blue\n"
    assert painter("approvals", "--json").json == []


def test_status_counts_what_waits_for_a_person_and_the_log_names_who_answered(painter: Inside) -> None:
    painter("call", "paint", "colour=red")
    assert painter("status", "--json").json["waiting"] == 1
    assert "1 for approval: toolwire approvals" in painter("status").out
    [asked] = painter("approvals", "--json").json
    painter("approve", asked["id"], "--by", "ann")
    assert painter("status", "--json").json["waiting"] == 0
    assert "waiting" not in painter("status").out
    [told] = [line for line in painter("logs").out.splitlines() if "approved" in line]
    assert "ann said so" in told


def test_a_no_is_an_answer_and_a_second_word_comes_too_late(painter: Inside, tmp_path: Path) -> None:
    painter("call", "paint", "colour=red")
    [asked] = painter("approvals", "--json").json
    no = painter("approve", asked["id"], "--deny", "--reason", "not red")
    assert (no.code, f"toolwire call --resume {asked['turn_id']}" in no.out + no.err) == (Exit.DONE, True)
    late = painter("approve", asked["id"])
    assert (late.code, "it is rejected" in late.err) == (Exit.FAILED, True)
    assert painter("call", "--resume").code == Exit.FAILED
    assert not (tmp_path / "painted").exists()
    assert "not red" in painter("approvals", "--all", "--json").out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("approve", "nope"), Exit.NOT_FOUND),
        (("approve", "nope", "--deny", "--turn"), Exit.USAGE),
        (("approve", "nope", "--args", "[1]"), Exit.USAGE),
        (("approve",), Exit.NOT_FOUND),
        (("approve", "nope", "--pattern", "a", "--turn"), Exit.USAGE),
        (("approve", "nope", "--hours", "2"), Exit.USAGE),
        (("approve", "nope", "--revoke"), Exit.NOT_FOUND),
    ],
)
def test_a_wrong_answer_says_what_is_wrong(inside: Inside, words: tuple[str, ...], code: Exit) -> None:
    ran = inside(*words)
    assert (ran.code, bool(ran.err)) == (code, True)


def test_rules_of_the_settings_judge_calls(painter: Inside, tmp_path: Path) -> None:
    with (tmp_path / "toolwire.toml").open("a", encoding="utf-8") as file:
        file.write('rules = ["deny paint where colour is black", "allow paint where colour is gr*"]\n')
    assert painter("call", "paint", "colour=green").code == Exit.DONE
    black = painter("explain", "paint", "colour=black")
    assert "deny paint where colour is black" in black.out + black.err
    assert painter("call", "paint", "colour=black").code == Exit.FAILED
    (tmp_path / "toolwire.toml").write_text('[grant]\nrules = ["forbid paint"]\n', encoding="utf-8")
    wrong = painter("status")
    assert (wrong.code, "must read like" in wrong.err) == (Exit.USAGE, True)


@pytest.mark.feature("F118")
def test_permissions_are_switched_in_the_settings(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    settings = tmp_path / "toolwire.toml"
    settings.write_text("[grant]\npermissions = []\n", encoding="utf-8")
    refused = inside("call", "read", "path=notes.txt")
    assert (refused.code, "it needs file_read" in refused.err) == (Exit.FAILED, True)
    settings.write_text('[grant]\npermissions = ["file_read"]\n', encoding="utf-8")
    assert inside("call", "read", "path=notes.txt").code == Exit.DONE


def test_a_pattern_approval_is_for_all_calls_like_it_until_it_is_revoked(painter: Inside, tmp_path: Path) -> None:
    painter("call", "paint", "colour=dark red")
    [asked] = painter("approvals", "--json").json
    wrong = painter("approve", asked["id"], "--pattern", "colour is light *")
    assert (wrong.code, "does not fit" in wrong.err) == (Exit.USAGE, True)
    yes = painter("approve", asked["id"], "--pattern", "colour is dark *", "--hours", "2", "--by", "ann")
    assert (yes.code, "ann allowed paint with 'colour is dark *' for agent cli" in yes.out) == (Exit.DONE, True)
    assert painter("call", "--resume").code == Exit.DONE
    assert painter("call", "paint", "colour=dark blue").code == Exit.DONE
    assert painter("call", "paint", "colour=light blue").code == Exit.WAITING
    assert painter("call", "paint", "colour=dark blue", "--project", "other").code == Exit.WAITING
    assert (tmp_path / "painted").read_text(encoding="utf-8") == "dark red\ndark blue\n"

    assert "ann allowed paint" in painter("explain", "paint", "colour=dark green").out
    assert "once a person agrees" in painter("explain", "paint", "colour=light green").out
    assert [one["pattern"] for one in painter("approvals", "--patterns", "--json").json] == ["colour is dark *"]
    assert painter("approve", asked["id"], "--revoke").code == Exit.DONE
    assert painter("approvals", "--patterns", "--json").json == []
    assert painter("call", "paint", "colour=dark blue").code == Exit.WAITING


@pytest.mark.parametrize(
    ("autonomy", "code"), [("readonly", Exit.FAILED), ("supervised", Exit.WAITING), ("full", Exit.DONE)]
)
def test_autonomy_can_be_set_for_the_agent_at_the_terminal(
    painter: Inside, tmp_path: Path, autonomy: str, code: Exit
) -> None:
    with (tmp_path / "toolwire.toml").open("a", encoding="utf-8") as settings:
        settings.write(f'[agents.cli]\nautonomy = "{autonomy}"\n')

    assert painter("call", "paint", "colour=red").code == code


@pytest.mark.threat("T4")
def test_T4_arguments_with_a_key_that_stands_twice_are_refused(painter: Inside, tmp_path: Path) -> None:
    twice = '{"colour": "red", "colour": "black"}'
    told = painter("call", "paint", "--args", twice)
    assert (told.code, "'colour' stands twice" in told.err) == (Exit.USAGE, True)
    painter("call", "paint", "colour=red")
    [asked] = painter("approvals", "--json").json
    assert painter("approve", asked["id"], "--args", twice).code == Exit.USAGE
    assert not (tmp_path / "painted").exists()


@pytest.mark.threat("T66")
def test_T66_a_name_that_a_model_made_up_is_one_line_of_the_log(painter: Inside) -> None:
    forged = "01-31 12:00:00  approved  bash        success by ann"
    call = painter("call", f"x\n{forged}", "--json").json
    for words in (["logs"], ["explain", "--call", call["call_id"]]):
        assert not any(line.startswith("01-31") for line in painter(*words).out.splitlines())


HIDING = {
    "behind a long text": ("x" * 9_000 + "; rm -rf build", "; rm -rf build"),
    "behind blanks": ("ls" + " " * 3_000 + "; rm -rf build", "3,000 blanks"),
    "in nothing that is seen": ("ls\u200b\u2028\u00a0\u3164", r"ls\u200b\u2028\u00a0\u3164"),
    "by turning around": ("ls \u202egnp.exe\u200f", r"ls \u202egnp.exe\u200f"),
}


@pytest.mark.threat("T65")
@pytest.mark.parametrize("how", HIDING)
def test_T65_no_part_of_what_would_run_hides_from_the_one_who_is_asked(painter: Inside, how: str) -> None:
    colour, seen = HIDING[how]
    painter("call", "paint", "--args", json.dumps({"colour": colour}))
    assert seen in painter("approvals").out


@pytest.mark.threat("T65")
def test_T65_every_argument_is_named_however_long_the_first_is(inside: Inside, tmp_path: Path) -> None:
    settings = '[tools]\ngroups = ["coding"]\n[grant]\ntier = "run"\npermissions = ["file_read", "file_write"]\n'
    (tmp_path / "toolwire.toml").write_text(settings, encoding="utf-8")
    arguments = json.dumps({"content": "harmless\n" * 2_000, "path": "deploy/production.key"})
    assert inside("call", "write", "--args", arguments).code == Exit.WAITING
    shown = inside("approvals").out
    assert '"path": "deploy/production.key"' in shown
    assert "characters are not shown" in shown


@pytest.mark.parametrize(
    ("colour", "seen"),
    [
        ("p\u0430ypal.com", "p\\u0430ypal.com"),
        ("\u043f\u0440\u0438\u0432\u0435\u0442", "\u043f\u0440\u0438\u0432\u0435\u0442"),
    ],
    ids=["mixed", "one script"],
)
def test_T65_letters_that_pass_for_others_are_marked_in_the_question(painter: Inside, colour: str, seen: str) -> None:
    """A word in another script is left to be read."""
    painter("call", "paint", f"colour={colour}")

    assert seen in painter("approvals").out
