"""`toolwire ask`: a question at the terminal, a model behind real HTTP, and real tools."""

import json
import shlex
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import LIMIT_S, Stage, Terminal, scripted
from toolwire.cli.entry.exits import Exit

CTRL_D = "\x04"
MULTIPLY = [("calculator", {"expression": "23*19"})]
DANGEROUS = """
from toolwire import tool

@tool(requires_confirmation=True)
def erase(path: str) -> str:
    \"\"\"Erase a file for good.\"\"\"
    with open("ledger", "a") as ledger:
        ledger.write(path + "\\n")
    return "erased " + path
"""


@pytest.fixture
def with_eraser(stage: Stage) -> Stage:
    stage.settings('[tools]\nmodules = ["mine:erase"]\n')
    stage.module("mine", DANGEROUS)
    return stage


def ledger(stage: Stage) -> list[str]:
    path = stage.folder / "ledger"
    return path.read_text().split() if path.exists() else []


@pytest.mark.feature("F037")
def test_the_answer_goes_to_standard_output_and_everything_else_to_standard_error(inside: Inside) -> None:
    with scripted(MULTIPLY, "It is 437.") as model:
        ran = inside("ask", "What is 23*19?", *model.flags)
    assert (ran.code, ran.out) == (Exit.DONE, "It is 437.\n")
    assert 'calculator(expression="23*19") → result=437' in ran.err
    assert "2 steps · 1 call · 30 tokens" in ran.err
    assert "toolwire logs --turn " in ran.err
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("command", [["ask", "hi"], ["chat"]])
def test_a_model_of_no_provider_is_refused_before_anything_is_made(stage: Stage, command: list[str]) -> None:
    ran = stage.run(*command, "--model", "nonsense:x")

    assert (ran.code, "no provider is called 'nonsense'" in ran.err) == (Exit.USAGE, True)
    assert list(stage.folder.iterdir()) == []


def test_the_command_under_an_answer_shows_its_record_wherever_that_lies(stage: Stage) -> None:
    where = ["--project", "garden", "--home", str(stage.folder / "other home")]
    with scripted("Hello.") as model:
        ran = stage.run("ask", "Hello?", *where, *model.flags)
    [line] = [line for line in ran.err.splitlines() if line.startswith("toolwire logs --turn ")]

    shown = stage.run(*shlex.split(line.partition("  (")[0])[1:])

    assert (shown.code, shown.err.partition(";")[0]) == (Exit.DONE, "The audit log has no rows for this")


@pytest.mark.feature("F037")
def test_with_json_there_is_one_object_and_nothing_else(inside: Inside) -> None:
    with scripted(MULTIPLY, "It is 437.") as model:
        ran = inside("ask", "What is 23*19?", *model.flags, "--json")
    said = ran.json
    assert (said["answer"], said["reason"], said["iterations"]) == ("It is 437.", "answered", 2)
    assert [call["result"]["structured"]["result"] for call in said["calls"]] == [437]
    assert ran.err == ""


def test_every_event_can_be_watched_as_json_lines(inside: Inside) -> None:
    with scripted(MULTIPLY, "It is 437.") as model:
        ran = inside("ask", "What is 23*19?", *model.flags, "--json", "--trace")
    events = [json.loads(line)["event"] for line in ran.err.splitlines()]
    assert events[:2] == ["turn_started", "model_asked"]
    assert [name for name in events if name.startswith("call_") and name != "call_written"] == [
        "call_started",
        "call_finished",
    ]
    assert events[-1] == "turn_ended"
    assert ran.json["answer"] == "It is 437."


def test_every_event_can_be_watched_as_lines(inside: Inside) -> None:
    with scripted("Hello.") as model:
        ran = inside("ask", "Hi", *model.flags, "--trace")
    assert "turn_ended" in ran.err
    assert ran.out == "Hello.\n"


@pytest.mark.feature("F146")
@pytest.mark.feature("F112")
def test_with_by_intent_a_question_gets_the_tier_that_its_words_ask_for(stage: Stage) -> None:
    stage.settings('[grant]\nby_intent = true\n[tools]\nmodules = ["mine:peek"]\n')
    stage.module(
        "mine",
        "from toolwire import Tier, tool\n@tool(tier=Tier.WALK)\ndef peek() -> str:\n    'Peek.'\n    return ''\n",
    )
    with scripted("Hello!", "It is 4.") as model:
        for question in ("Hello there", "Show me the notes"):
            assert stage.run("ask", question, *model.flags).code == Exit.DONE
    names = [{tool["function"]["name"] for tool in request.get("tools", ())} for request in model.requests]
    assert ["peek" in offered for offered in names] == [False, True]


def test_without_tools_it_is_a_plain_question_to_the_model(inside: Inside) -> None:
    with scripted("Just words.") as model:
        ran = inside("ask", "Hi", *model.flags, "--no-tools")
    assert ran.out == "Just words.\n"
    assert "tools" not in model.requests[0]


def test_the_question_can_come_from_standard_input(stage: Stage) -> None:
    with scripted("Hello.") as model:
        ran = stage.run("ask", "-", *model.flags, stdin="Grüße\n".encode())
    assert ran.out == "Hello.\n"
    assert model.requests[0]["messages"][-1]["content"] == "Grüße"


def test_questions_of_one_thread_share_a_conversation(inside: Inside) -> None:
    with scripted("Nice to meet you.", "You are Ada.") as model:
        inside("ask", "I am Ada.", *model.flags, "--thread", "us", "--system", "Be kind.")
        inside("ask", "Who am I?", *model.flags, "--thread", "us", "--system", "Be kind.")
    said = [message["content"] for message in model.requests[1]["messages"]]
    assert said == ["Be kind.", "I am Ada.", "Nice to meet you.", "Who am I?"]


def test_what_was_recorded_can_be_replayed_without_the_model(inside: Inside) -> None:
    with scripted(MULTIPLY, "It is 437.") as model:
        inside("ask", "What is 23*19?", *model.flags, "--record", "tape.jsonl")
    ran = inside("ask", "What is 23*19?", "--replay", "tape.jsonl")
    assert (ran.code, ran.out) == (Exit.DONE, "It is 437.\n")
    other = inside("ask", "Something else?", "--replay", "tape.jsonl")
    assert other.code == Exit.MODEL
    Path("tape.jsonl").write_bytes(b"\x00garbage\n")
    broken = inside("ask", "What is 23*19?", "--replay", "tape.jsonl")
    assert (broken.code, "record it again" in broken.err) == (Exit.USAGE, True)


def test_a_recording_replaces_no_file(inside: Inside) -> None:
    Path("tape.jsonl").write_text("precious")
    with scripted("Hello.") as model:
        ran = inside("ask", "Hi", *model.flags, "--record", "tape.jsonl")
    assert (ran.code, "choose another name" in ran.err) == (Exit.USAGE, True)
    assert Path("tape.jsonl").read_text() == "precious"
    assert model.requests == []


@pytest.mark.parametrize("command", [["ask", "Hi"], ["chat"]])
def test_a_replay_cannot_be_recorded(inside: Inside, command: list[str]) -> None:
    ran = inside(*command, "--replay", "old.jsonl", "--record", "new.jsonl")
    assert (ran.code, "there is nothing to record" in ran.err) == (Exit.USAGE, True)
    assert not Path("new.jsonl").exists()


def test_a_turn_that_runs_into_a_limit_says_so_and_does_not_count_as_done(inside: Inside) -> None:
    with scripted(MULTIPLY, "I could not finish.") as model:
        ran = inside("ask", "Go on", *model.flags, "--iterations", "2")
    assert (ran.code, ran.out) == (Exit.FAILED, "I could not finish.\n")
    assert "Stopped: iteration limit." in ran.err


def test_what_a_model_or_tool_says_cannot_command_the_terminal(inside: Inside) -> None:
    with scripted([("echo", {"message": "\x1b]0;owned\x07 [red]"})], "Bold: \x1b[1m[bold]x[/bold]") as model:
        ran = inside("ask", "Hi\x1b[2J", *model.flags)
    assert ran.out == "Bold: ␛[1m[bold]x[/bold]\n"
    assert "\x1b" not in ran.err
    assert "[red]" in ran.err


@pytest.mark.feature("F040")
def test_a_turn_that_needs_approval_waits_where_no_user_is_present_and_goes_on_once_approved(
    with_eraser: Stage,
) -> None:
    with scripted([("erase", {"path": "a"})], "Done.") as model:
        waits = with_eraser.run("ask", "Erase a", *model.flags)
        assert (waits.code, ledger(with_eraser)) == (Exit.WAITING, [])
        [asked] = with_eraser.run("approvals", "--json").json
        assert f"toolwire approve {asked['id']}" in waits.err
        assert with_eraser.run("approve", asked["id"]).code == Exit.DONE
        assert with_eraser.run("ask", "--resume", *model.flags).out == "Done.\n"
    assert ledger(with_eraser) == ["a"]


@pytest.mark.feature("F040")
def test_yes_confirms_everything_beforehand(with_eraser: Stage) -> None:
    with scripted([("erase", {"path": "a"})], "Done.") as model:
        assert with_eraser.run("ask", "Erase a", *model.flags, "--yes").code == Exit.DONE
    assert ledger(with_eraser) == ["a"]


@pytest.mark.feature("F040")
def test_the_person_at_the_terminal_sees_the_call_and_decides(with_eraser: Stage) -> None:
    """No is the default; always holds for one tool and one turn."""
    asks = [[("erase", {"path": path})] for path in ("a", "b", "c", "d")]
    with scripted(*asks, "Done.") as model, Terminal(with_eraser, "ask", "Erase", *model.flags) as terminal:
        shown = terminal.wait_for("[y/N/always]")
        assert '"path": "a"' in shown
        terminal.type("\n")
        terminal.wait_for("[y/N/always]")
        terminal.type("y\n")
        terminal.wait_for("[y/N/always]")
        terminal.type("always\n")
        assert terminal.end() == Exit.DONE
    assert ledger(with_eraser) == ["b", "c", "d"]


@pytest.mark.threat("T65")
@pytest.mark.parametrize("keys", ["y\n", "y", "always\ny\n", "What is 3 + 4?\n"], ids=repr)
def test_T65_what_was_typed_before_the_question_is_no_answer_to_it(with_eraser: Stage, keys: str) -> None:
    with scripted([("erase", {"path": "a"})], "Done.") as model:
        model.gates[1] = threading.Event()
        with Terminal(with_eraser, "ask", "Erase", *model.flags) as terminal:
            model.wait_for_request(terminal.process)
            terminal.type(keys)
            terminal.wait_for(keys.strip().splitlines()[-1])  # the terminal has it
            model.gates[1].set()
            terminal.wait_for("Run it?")
            assert ledger(with_eraser) == []
            terminal.type("n\n")
            assert terminal.end() == Exit.DONE
    assert ledger(with_eraser) == []
    whole = [line for line in keys.split("\n")[:-1] if line]
    assert ("Discarded, since it was typed before this question" in terminal.seen) == bool(whole)


@pytest.mark.threat("T65")
def test_T65_an_answer_that_is_not_understood_is_asked_for_again(with_eraser: Stage) -> None:
    with (
        scripted([("erase", {"path": "a"})], "Done.") as model,
        Terminal(with_eraser, "ask", "Erase", *model.flags) as terminal,
    ):
        for answer in ("maybe", "yess", "What is 3 + 4?", "yes please do not"):
            terminal.wait_for("Run it?")
            terminal.type(f"{answer}\n")
            terminal.wait_for("Answer y (yes), n (no;")
        terminal.wait_for("Run it?")
        terminal.type("Yes\n")
        assert terminal.end() == Exit.DONE
    assert ledger(with_eraser) == ["a"]


@pytest.mark.parametrize("answer", ["no, put it in docs/", "n put it in docs/", "No: put it in docs/"])
def test_words_after_a_no_reach_the_model(with_eraser: Stage, answer: str) -> None:
    with (
        scripted([("erase", {"path": "a"})], "Done.") as model,
        Terminal(with_eraser, "ask", "Erase", *model.flags) as terminal,
    ):
        terminal.wait_for("Run it?")
        terminal.type(f"{answer}\n")
        assert terminal.end() == Exit.DONE
    assert ledger(with_eraser) == []
    assert "did not allow 'erase': put it in docs/" in json.dumps(model.requests[1]["messages"])


@pytest.mark.feature("F040")
def test_a_person_can_steer_between_steps_or_stop(stage: Stage) -> None:
    with scripted(MULTIPLY, MULTIPLY) as model, Terminal(stage, "ask", "Go", *model.flags, "--step") as terminal:
        terminal.wait_for("stop ends")
        terminal.type("in French please\n")
        terminal.wait_for("stop ends")
        terminal.type("stop\n")
        assert terminal.end() == Exit.FAILED
    assert "in French please" in json.dumps(model.requests[1]["messages"])
    assert "Stopped by the user." in terminal.seen


def test_ctrl_d_at_the_question_between_steps_stops(stage: Stage) -> None:
    with (
        scripted(MULTIPLY, "never asked for") as model,
        Terminal(stage, "ask", "Go", *model.flags, "--step") as terminal,
    ):
        terminal.wait_for("words go to the model: ")
        terminal.type(CTRL_D)
        assert terminal.end() == Exit.FAILED
    assert len(model.requests) == 1
    assert "\nStopped by the user." in terminal.seen.replace("\r", "")


def test_ctrl_d_at_an_approval_is_a_no_on_a_line_of_its_own(with_eraser: Stage) -> None:
    with Terminal(with_eraser, "call", "erase", "path=docs", NO_COLOR="1") as terminal:
        terminal.wait_for("[y/N/always] ")
        terminal.type(CTRL_D)
        assert terminal.end() == Exit.FAILED
    assert "\nThe user did not allow 'erase'." in terminal.seen.replace("\r", "")


def test_a_long_wait_for_a_provider_is_shown_before_it_begins(stage: Stage) -> None:
    with scripted(429, "never asked for") as model:
        model.pause_s = "45"
        process = stage.start("ask", "Hi", *model.flags)
        assert process.stderr is not None
        shown = [process.stderr.readline().decode() for _ in range(2)]
    assert "asking again in 45.0 s" in shown[1]
    assert "over its rate limit (429)" in shown[1]


def test_a_long_wait_for_a_provider_is_shown_at_a_terminal_too(stage: Stage) -> None:
    with scripted(429, "never asked for") as model:
        model.pause_s = "45"
        with Terminal(stage, "ask", "Hi", *model.flags) as terminal:
            terminal.wait_for("asking again in 45.0 s")


def test_a_wait_for_a_provider_is_an_event_too(inside: Inside) -> None:
    with scripted(503, "Back again.") as model:
        model.pause_s = "0.01"
        ran = inside("ask", "Hi", *model.flags, "--json", "--trace")
    [waited] = [event for event in map(json.loads, ran.err.splitlines()) if event["event"] == "model_waited_for"]
    assert (waited["wait_s"], "503" in waited["reason"]) == (0.01, True)
    assert ran.json["answer"] == "Back again."


def test_at_a_terminal_the_answer_is_streamed_once(stage: Stage) -> None:
    with scripted(MULTIPLY, "It is 437.") as model:
        model.gates[1] = threading.Event()
        with Terminal(stage, "ask", "23*19?", *model.flags) as terminal:
            terminal.wait_for("is thinking")
            model.gates[1].set()
            assert terminal.end() == Exit.DONE
    assert terminal.seen.count("It is 437.") == 1


CALL = '{"name": "calculator", "arguments": {"expression": "1"}}'
LIKE_CALLS = [
    '{"temperature": 5} is how warm it is.\nAnd that is all.',
    'Here it is:\n{"temperature": 5, "unit": "C"}',
    "[1] is a note.\n[2] is another.",
    f"Use `<tool_call>{CALL}</tool_call>` now. Then look.",
]


@pytest.mark.parametrize("answer", LIKE_CALLS)
def test_an_answer_that_looks_like_a_call_is_printed_once(stage: Stage, inside: Inside, answer: str) -> None:
    bare = "".join(answer.split())
    with scripted(answer, answer) as model:
        with Terminal(stage, "ask", "Hm?", *model.flags, columns=200) as terminal:
            assert terminal.end() == Exit.DONE
        piped = inside("ask", "Hm?", *model.flags).out

    shown = "".join(terminal.seen.split())
    assert (shown.count(bare), shown.count(bare[-12:])) == (1, 1)
    assert piped == f"{answer}\n"


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_a_terminal_without_colours_gets_none(stage: Stage, variable: str) -> None:
    plain: dict[str, Any] = {"NO_COLOR": "1"} if variable == "NO_COLOR" else {"TERM": "dumb"}
    with scripted(MULTIPLY, "437.") as model, Terminal(stage, "ask", "23*19?", *model.flags, **plain) as terminal:
        assert terminal.end() == Exit.DONE
    assert "\x1b" not in terminal.seen


def test_ctrl_c_says_how_to_go_on_and_the_turn_goes_on(stage: Stage) -> None:
    with scripted(MULTIPLY, "never shown", "It is 437.") as model:
        model.gates[2] = threading.Event()
        process = stage.start("ask", "What is 23*19?", *model.flags)
        model.wait_for_request(process)
        model.wait_for_request(process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == Exit.INTERRUPTED
        [hint] = [line for line in err.decode().splitlines() if line.startswith("Interrupted. Go on with: toolwire ")]
        model.gates[2].set()
        ran = stage.run(*hint.removeprefix("Interrupted. Go on with: toolwire ").split())
    assert (ran.code, ran.out) == (Exit.DONE, "It is 437.\n")
    assert "Traceback" not in err.decode()


def test_without_any_settings_the_embedded_model_answers_with_a_tool(stage: Stage) -> None:
    """The real model, in the command's own process: no key, no server, no network."""
    ran = stage.run("ask", "What is 23*19?", "--json")
    assert (ran.code, ran.json["model"], ran.json["usage"]["cost_usd"]) == (Exit.DONE, "local:smollm2", 0.0)
    assert [call["result"]["structured"]["result"] for call in ran.json["calls"]] == [437]
    assert "437" in ran.json["answer"]


SCHEMA = '{"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}'


@pytest.mark.feature("F262")
def test_a_turn_with_a_result_schema_ends_with_a_result_of_that_shape(inside: Inside, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(SCHEMA)
    with scripted("It is 3.50.", [("submit_result", {"result": {"price": 3.5}})]) as model:
        ran = inside("ask", "The price?", *model.flags, "--result-schema", str(schema), "--json")
    status = inside("status", "--json")

    assert (ran.code, ran.json["value"], ran.json["status"]) == (Exit.DONE, {"price": 3.5}, "success")
    assert status.json["newest"][0]["value"] == {"price": 3.5}


@pytest.mark.parametrize(
    "content",
    [
        "nothing",
        "",
        "[]",
        '{"type": "odd"}',
        pytest.param('{"not":' * 100_000, id="deep"),
        pytest.param(" " * 2**21, id="large"),
    ],
)
def test_a_result_schema_that_is_none_is_refused(inside: Inside, tmp_path: Path, content: str) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(content)
    ran = inside("ask", "The price?", "--result-schema", str(schema))

    assert (ran.code, "--result-schema" in ran.err) == (Exit.USAGE, True)
