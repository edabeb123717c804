"""A process that is killed in the middle of a turn: the turn goes on, and no effect happens twice."""

import json
import os
import select
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import LIMIT_S, Script, Stage, scripted
from toolwire.cli.entry.exits import Exit

MARKERS = '''
import time
from toolwire import Effect, tool


def _mark(name):
    with open("ledger", "a") as ledger:
        ledger.write(name + "\\n")
    if name.startswith("hang"):
        with open("doorbell", "w") as bell:
            bell.write("x")
        time.sleep(60)
    return "marked " + name


@tool
def mark(name: str) -> str:
    """Make a mark in the ledger, for good."""
    return _mark(name)


@tool(effect=Effect.IDEMPOTENT)
def mark_again(name: str) -> str:
    """Make a mark that may be made again."""
    return _mark(name.removeprefix("hang") if __import__("os").path.exists("calm") else name)


tools = [mark, mark_again]
'''


class Ledger:
    """What the tools did, and a bell that rings when one of them hangs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger"
        os.mkfifo(folder / "doorbell")
        self.bell = os.open(folder / "doorbell", os.O_RDONLY | os.O_NONBLOCK)

    def wait_until_a_tool_hangs(self) -> None:
        ready, _, _ = select.select([self.bell], [], [], LIMIT_S)
        assert ready, "no tool rang"

    @property
    def marks(self) -> Counter[str]:
        return Counter(self._path.read_text().split()) if self._path.exists() else Counter()


@pytest.fixture
def ledger(stage: Stage) -> Iterator[Ledger]:
    stage.settings('[tools]\nmodules = ["mine:tools"]\n')
    stage.module("mine", MARKERS)
    kept = Ledger(stage.folder)
    yield kept
    os.close(kept.bell)


def marks(*names: str, tool: str = "mark") -> list[tuple[str, dict[str, str]]]:
    return [(tool, {"name": name}) for name in names]


def killed(stage: Stage, model: Script, after_request: int) -> None:
    """Ask, and kill the process with SIGKILL while the model ponders its n-th answer."""
    gate = model.gates[after_request] = threading.Event()
    process = stage.start("ask", "Mark things", *model.flags)
    for _ in range(after_request):
        model.wait_for_request(process)
    process.kill()
    process.communicate(timeout=LIMIT_S)
    gate.set()


@pytest.mark.parametrize("after_request", [1, 2, 3])
def test_killed_while_the_model_ponders_the_turn_goes_on_and_marks_once(
    stage: Stage, ledger: Ledger, after_request: int
) -> None:
    """The protocol demands it: what was answered before is never run again."""
    steps = [marks("one"), marks("two", "three"), "Three marks."]
    script = [*steps[:after_request], *steps[after_request - 1 :]]
    with scripted(*script) as model:
        killed(stage, model, after_request)
        ran = stage.run("ask", "--resume", *model.flags, "--json")
    assert (ran.code, ran.json["answer"]) == (Exit.DONE, "Three marks.")
    assert ledger.marks == Counter(["one", "two", "three"])
    assert [call["result"]["ok"] for call in ran.json["calls"]] == [True, True, True]


@pytest.mark.parametrize("spelling", ["{id} --resume", "--resume {id}", "--resume={id}", "--resume"])
def test_the_turn_to_resume_can_be_named_in_several_ways(stage: Stage, ledger: Ledger, spelling: str) -> None:
    with scripted("never shown", "Here I am.") as model:
        killed(stage, model, 1)
        turn_id = stage.run("status", "--json").json["newest"][0]["id"]
        ran = stage.run("ask", *spelling.format(id=turn_id).split(), *model.flags, "--json")
    assert (ran.code, ran.json["turn_id"], ran.json["answer"]) == (Exit.DONE, turn_id, "Here I am.")


def test_an_empty_id_resumes_nothing(inside: Inside) -> None:
    """A script whose variable is empty must not go on with whatever turn is the newest."""
    ran = inside("ask", "--resume=")
    assert (ran.code, "is empty" in ran.err) == (Exit.USAGE, True)


def test_after_two_dashes_a_question_may_look_like_a_flag(inside: Inside) -> None:
    with scripted("It names a turn.") as model:
        ran = inside("ask", *model.flags, "--", "--resume=1")
    assert ran.out == "It names a turn.\n"
    assert model.requests[0]["messages"][-1]["content"] == "--resume=1"


def test_killed_while_a_tool_runs_its_outcome_is_unknown_and_it_is_not_run_again(stage: Stage, ledger: Ledger) -> None:
    """The protocol demands it: an unsafe tool that was started is never started again blindly."""
    with scripted(marks("before", "hang", "after"), "I will check.") as model:
        process = stage.start("ask", "Mark things", *model.flags)
        ledger.wait_until_a_tool_hangs()
        process.kill()
        process.communicate(timeout=LIMIT_S)
        ran = stage.run("ask", "--resume", *model.flags, "--json")
    assert ran.json["answer"] == "I will check."
    assert all(count == 1 for count in ledger.marks.values())
    by_name = {call["arguments"]["name"]: call["result"] for call in ran.json["calls"]}
    assert by_name["hang"]["error"]["code"] == "outcome_unknown"
    assert "It may or may not have taken effect" in json.dumps(model.requests[-1]["messages"])


def test_killed_while_a_tool_that_may_run_again_runs_it_runs_again(stage: Stage, ledger: Ledger) -> None:
    with scripted(marks("hanging", tool="mark_again"), "Marked.") as model:
        process = stage.start("ask", "Mark things", *model.flags)
        ledger.wait_until_a_tool_hangs()
        process.kill()
        process.communicate(timeout=LIMIT_S)
        (stage.folder / "calm").touch()
        ran = stage.run("ask", "--resume", *model.flags, "--json")
    assert ran.json["calls"][0]["result"]["ok"] is True
    assert sum(ledger.marks.values()) == 2


def test_a_turn_that_a_living_process_works_on_is_not_taken_over(stage: Stage) -> None:
    with scripted("Slowly.") as model:
        model.gates[1] = threading.Event()
        process = stage.start("ask", "Hi", *model.flags)
        model.wait_for_request(process)
        turn_id = stage.run("status", "--json").json["newest"][0]["id"]
        assert stage.run("ask", "--resume", *model.flags).code == Exit.NOT_FOUND
        ran = stage.run("ask", "--resume", turn_id, *model.flags)
        model.gates[1].set()
        out, _ = process.communicate(timeout=LIMIT_S)
    assert ran.code == Exit.FAILED
    assert turn_id in ran.err
    assert out == b"Slowly.\n"


def test_a_turn_that_ended_is_not_resumed(stage: Stage) -> None:
    with scripted("Hello.") as model:
        turn_id = stage.run("ask", "Hi", *model.flags, "--json").json["turn_id"]
        ran = stage.run("ask", "--resume", turn_id, *model.flags)
    assert (ran.code, turn_id in ran.err) == (Exit.FAILED, True)
    assert "Its outcome on record: Hello." in ran.err


def killed_call(stage: Stage, ledger: Ledger, tool: str) -> str:
    """Call a tool that hangs, kill the process with SIGKILL, and give the id of the turn that it left."""
    process = stage.start("call", tool, "name=hanging")
    ledger.wait_until_a_tool_hangs()
    process.kill()
    process.communicate(timeout=LIMIT_S)
    turn_id: str = stage.run("status", "--json").json["newest"][0]["id"]
    return turn_id


def test_a_killed_call_is_no_question_to_resume(stage: Stage, ledger: Ledger) -> None:
    turn_id = killed_call(stage, ledger, "mark")
    assert stage.run("ask", "--resume").code == Exit.NOT_FOUND
    ran = stage.run("ask", "--resume", turn_id)
    assert (ran.code, f"toolwire call --resume {turn_id}" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("named", [True, False])
def test_a_killed_call_of_an_unsafe_tool_is_settled_as_unknown_and_not_run_again(
    stage: Stage, ledger: Ledger, named: bool
) -> None:
    turn_id = killed_call(stage, ledger, "mark")
    ran = stage.run("call", "--resume", *([turn_id] if named else []), "--json")
    assert (ran.code, ran.json["error"]["code"]) == (Exit.FAILED, "outcome_unknown")
    assert ledger.marks == Counter(["hanging"])
    assert stage.run("status", "--json").json["turns"] == {"running": 0, "interrupted": 0, "ended": 1}
    assert stage.run("call", "--resume").code == Exit.NOT_FOUND
    assert stage.run("call", "--resume", turn_id).code == Exit.FAILED


def test_a_killed_call_of_a_tool_that_may_run_again_runs_again(stage: Stage, ledger: Ledger) -> None:
    killed_call(stage, ledger, "mark_again")
    (stage.folder / "calm").touch()
    ran = stage.run("call", "--resume", "--json")
    assert (ran.code, ran.json["ok"]) == (Exit.DONE, True)
    assert sum(ledger.marks.values()) == 2
    assert stage.run("status", "--json").json["turns"]["ended"] == 1


def test_what_cannot_be_resumed_as_a_call_is_left_alone(stage: Stage, ledger: Ledger) -> None:
    with scripted("never shown", "Here I am.") as model:
        killed(stage, model, 1)
        turn_id = stage.run("status", "--json").json["newest"][0]["id"]
        ran = stage.run("call", "--resume", turn_id)
        assert (ran.code, "is a question" in ran.err) == (Exit.NOT_FOUND, True)
        assert stage.run("call", "--resume", turn_id, "name=x").code == Exit.USAGE
        assert stage.run("ask", "--resume", turn_id, *model.flags).out == "Here I am.\n"


def test_killed_again_and_again_the_turn_still_ends_with_every_mark_once(stage: Stage, ledger: Ledger) -> None:
    """Each process gets one step further: the one before it was killed while the model pondered the next."""
    steps: list[object] = [marks("one"), marks("two"), marks("three")]
    script = [steps[0], steps[1], steps[1], steps[2], steps[2], "Done.", "Done."]
    with scripted(*script) as model:
        killed(stage, model, 2)
        for request in (4, 6):
            gate = model.gates[request] = threading.Event()
            process = stage.start("ask", "--resume", *model.flags)
            model.wait_for_request(process)
            model.wait_for_request(process)
            process.kill()
            process.communicate(timeout=LIMIT_S)
            gate.set()
        ran = stage.run("ask", "--resume", *model.flags, "--json")
    assert ran.json["answer"] == "Done."
    assert ledger.marks == Counter(["one", "two", "three"])
    assert [call["result"]["ok"] for call in ran.json["calls"]] == [True, True, True]


def test_ctrl_c_while_a_tool_runs_ends_at_once_and_tells_the_model_later(stage: Stage, ledger: Ledger) -> None:
    with scripted(marks("hang"), "It was canceled.") as model:
        process = stage.start("ask", "Mark", *model.flags)
        ledger.wait_until_a_tool_hangs()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == Exit.INTERRUPTED
        ran = stage.run("ask", "--resume", *model.flags, "--json")
    assert [call["result"]["status"] for call in ran.json["calls"]] == ["canceled"]
    assert "may have taken effect" in json.dumps(model.requests[-1]["messages"])
    assert ledger.marks == Counter(["hang"])
