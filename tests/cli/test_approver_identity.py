"""Where two people must agree, one person is one of them, by whatever names and in whatever way they answer."""

import json
import os
import pwd
import select
import urllib.request
from pathlib import Path

import pytest

from tests.cli.stage import LIMIT_S, Stage, Terminal
from toolwire.cli.entry.exits import Exit

TOOLS = '''
from toolwire import Tier, tool

@tool(tier=Tier.RUN)
def carve(word: str) -> str:
    """Carve a word into the door."""
    with open("carved", "a") as file:
        file.write(word + "\\n")
    return f"it says {word}"
'''
ME = pwd.getpwuid(os.getuid()).pw_name
TOKEN = "anns-long-token"


@pytest.fixture
def carver(stage: Stage) -> Stage:
    stage.module("carving", TOOLS)
    stage.settings('[tools]\nmodules = ["carving:carve"]\n[grant]\ntier = "run"\nrules = ["ask carve by 2"]\n')
    return stage


def waiting(stage: Stage) -> tuple[str, str]:
    [asked] = stage.run("approvals", "--json").json
    return asked["turn_id"], asked["id"]


def has_carved(stage: Stage) -> bool:
    return (stage.folder / "carved").exists()


def test_T82_one_system_user_is_one_person_whatever_name_they_give(carver: Stage) -> None:
    assert carver.run("call", "carve", "word=hi").code == Exit.WAITING
    turn, asked = waiting(carver)
    for words in (["--by", "ann"], ["--by", "Ben "], ["--by", ME.upper()], []):
        yes = carver.run("approve", asked, *words, LOGNAME="cleo", USER="cleo", LNAME="cleo", USERNAME="cleo")
        assert (yes.code, "1 of 2 people" in yes.out) == (Exit.DONE, True)
        assert "Another person must agree" in yes.err
    assert carver.run("call", "--resume", turn).code == Exit.WAITING
    assert not has_carved(carver)
    by = {answer["by"] for answer in carver.run("approvals", "--json").json[0]["answers"]}
    assert by == {ME}
    told = carver.run("logs").out
    assert (f"{ME} for ann said so" in told, "cleo" in told) == (True, False)


def test_T82_who_approves_at_the_terminal_is_not_a_second_person_later(carver: Stage) -> None:
    with Terminal(carver, "call", "carve", "word=hi") as terminal:
        terminal.wait_for("Run it?")
        terminal.type("y\n")
        assert terminal.end() == Exit.WAITING
    turn, asked = waiting(carver)
    assert "1 of 2 people" in carver.run("approve", asked).out
    assert carver.run("call", "--resume", turn, "--yes").code == Exit.WAITING
    assert not has_carved(carver)


def test_T82_control_the_holder_of_a_token_is_another_person(carver: Stage) -> None:
    assert carver.run("call", "carve", "word=hi").code == Exit.WAITING
    turn, asked = waiting(carver)
    assert "1 of 2 people" in carver.run("approve", asked).out
    served = carver.start("serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--token-env", "ANN", ANN=TOKEN)
    assert served.stdout is not None
    assert select.select([served.stdout], [], [], LIMIT_S)[0]
    address = served.stdout.readline().decode().split()[1]
    request = urllib.request.Request(
        f"{address}/approvals/{asked}",
        json.dumps({"granted": True}).encode(),
        {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        assert json.load(answer)["state"] == "granted"
    assert carver.run("call", "--resume", turn).code == Exit.DONE
    assert Path(carver.folder / "carved").read_text() == "hi\n"
