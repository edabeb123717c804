"""`toolwire chat`: one conversation, at a terminal or through a pipe."""

import json
import threading

from tests.cli.stage import Stage, Terminal, scripted
from toolwire.cli.exits import Exit


def test_lines_from_a_pipe_are_questions_and_its_end_ends_the_chat(stage: Stage) -> None:
    with scripted("Hello Ada.", "You are Ada.") as model:
        ran = stage.run("chat", *model.flags, stdin=b"I am Ada.\n\n/tools\nWho am I?")
    assert ran.code == Exit.DONE
    assert [line for line in ran.out.splitlines() if "Ada" in line] == ["Hello Ada.", "You are Ada."]
    assert "calculator" in ran.out
    said = [message["content"] for message in model.requests[1]["messages"]]
    assert said == ["I am Ada.", "Hello Ada.", "Who am I?"]
    assert "\x1b" not in ran.out + ran.err


def test_a_new_conversation_knows_nothing_of_the_old_one(stage: Stage) -> None:
    with scripted("Hello.", "Who knows.") as model:
        stage.run("chat", *model.flags, stdin=b"I am Ada.\n/new\nWho am I?\n/quit\nnever asked\n")
    assert [message["content"] for message in model.requests[1]["messages"]] == ["Who am I?"]
    assert len(model.requests) == 2


def test_a_model_that_fails_once_does_not_end_the_chat(stage: Stage) -> None:
    with scripted(401, "Back again.") as model:
        ran = stage.run("chat", *model.flags, stdin=b"Hi\nHi again\n")
    assert (ran.code, ran.out) == (Exit.DONE, "Back again.\n")
    assert "Traceback" not in ran.err


def test_an_unknown_word_gets_the_nearest_one(stage: Stage) -> None:
    with scripted() as model:
        ran = stage.run("chat", *model.flags, stdin=b"/hepl\n")
    assert "try /help" in ran.err


def test_at_a_terminal_ctrl_c_stops_the_answer_and_ctrl_d_the_chat(stage: Stage) -> None:
    with scripted("never shown", "Here I am.") as model:
        model.gates[1] = threading.Event()
        with Terminal(stage, "chat", *model.flags) as terminal:
            terminal.wait_for("›")
            terminal.type("Are you there?\n")
            model.wait_for_request(terminal.process)
            terminal.type("\x03")
            terminal.wait_for("Canceled.")
            terminal.wait_for("›")
            terminal.type("And now?\n")
            terminal.wait_for("Here I am.")
            terminal.wait_for("›")
            terminal.type("\x04")
            assert terminal.end() == Exit.DONE
    assert "Traceback" not in terminal.seen
    assert "And now?" in (stage.folder / ".toolwire" / "history").read_text()
    assert "Are you there?" not in json.dumps(model.requests[1]["messages"])
