"""`toolwire chat`: one conversation, at a terminal or through a pipe."""

import json
import threading
from typing import Any

from tests.cli.stage import Script, Stage, Terminal, scripted
from toolwire.cli.entry.exits import Exit


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
            terminal.wait_for("Interrupted.")
            terminal.wait_for("›")
            terminal.type("And now?\n")
            terminal.wait_for("Here I am.")
            terminal.wait_for("›")
            terminal.type("\x04")
            assert terminal.end() == Exit.DONE
    assert "Traceback" not in terminal.seen
    assert "And now?" in (stage.folder / ".toolwire" / "history").read_text()
    assert "Are you there?" in json.dumps(model.requests[1]["messages"])


def test_a_conversation_that_is_continued_shows_its_end(stage: Stage) -> None:
    with scripted(*(f"Answer {number}." for number in range(5))) as model:
        for number in range(5):
            stage.run("ask", f"Question {number}?", "--thread", "work", *model.flags)
        with Terminal(stage, "chat", "--thread", "work", *model.flags) as terminal:
            terminal.wait_for("(4 earlier messages)")
            terminal.wait_for("› Question 2?")
            terminal.wait_for("Answer 4.")
            terminal.wait_for("›")
            terminal.type("\x04")
            assert terminal.end() == Exit.DONE
    assert "Question 1?" not in terminal.seen


HOLDS = """
import asyncio
from toolwire import Effect, tool

@tool(effect=Effect.UNSAFE)
def note(text: str) -> str:
    \"\"\"Write a note down.\"\"\"
    with open("notes", "a") as file:
        file.write(text + "\\n")
    return "noted"

@tool
async def hold() -> str:
    \"\"\"Take very long.\"\"\"
    with open("/dev/tty", "w") as terminal:
        terminal.write("holding")
    await asyncio.Event().wait()
    return "never"
"""


def interrupted(stage: Stage, terminal: Terminal, model: Script) -> None:
    """A question whose first call has taken effect, cut off while the model ponders."""
    model.gates[2] = threading.Event()
    terminal.wait_for("›")
    terminal.type("Note it down\n")
    model.wait_for_request(terminal.process)
    model.wait_for_request(terminal.process)
    assert (stage.folder / "notes").read_text() == "milk\n"
    terminal.type("\x03")
    terminal.wait_for("Interrupted.")
    terminal.wait_for("/continue")
    terminal.wait_for("›")


def tools_of(stage: Stage) -> None:
    stage.module("own", HOLDS)
    stage.settings('[tools]\nmodules = ["own:note", "own:hold"]\n[grant]\ntier = "run"\n')


def test_A3_the_next_question_sees_what_an_interrupted_one_has_done(stage: Stage) -> None:
    tools_of(stage)
    with (
        scripted([("note", {"text": "milk"})], "never shown", "It is noted.") as model,
        Terminal(stage, "chat", *model.flags, "-y") as terminal,
    ):
        interrupted(stage, terminal, model)
        terminal.type("Did you?\n")
        terminal.wait_for("It is noted.")
        terminal.wait_for("›")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    told = model.requests[2]["messages"]
    assert next(one["content"] for one in told if one["role"] == "user") == "Note it down"
    assert [call["function"]["name"] for one in told for call in one.get("tool_calls") or ()] == ["note"]
    assert [one["content"] for one in told if one["role"] == "tool"] == ["noted"]
    assert told[-1]["content"].endswith("Did you?")


def test_A3_an_interrupted_question_goes_on_inside_the_chat(stage: Stage) -> None:
    tools_of(stage)
    with (
        scripted([("note", {"text": "milk"})], "never shown", "All done.", "Again: done.") as model,
        Terminal(stage, "chat", *model.flags, "-y") as terminal,
    ):
        interrupted(stage, terminal, model)
        terminal.type("/continue\n")
        terminal.wait_for("All done.")
        terminal.wait_for("›")
        terminal.type("/continue\n")
        terminal.wait_for("No question of this conversation was interrupted.")
        terminal.wait_for("›")
        terminal.type("And?\n")
        terminal.wait_for("Again: done.")
        terminal.wait_for("›")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    assert (stage.folder / "notes").read_text() == "milk\n"
    assert said(model.requests[3]) == ["Note it down", "And?"]


def test_A3_a_call_that_ctrl_c_stopped_is_told_as_canceled(stage: Stage) -> None:
    tools_of(stage)
    with (
        scripted([("hold", {})], "I see.") as model,
        Terminal(stage, "chat", *model.flags, "-y") as terminal,
    ):
        terminal.wait_for("›")
        terminal.type("Hold it\n")
        terminal.wait_for("holding")
        terminal.type("\x03")
        terminal.wait_for("Interrupted.")
        terminal.wait_for("›")
        terminal.type("What happened?\n")
        terminal.wait_for("I see.")
        terminal.wait_for("›")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    [result] = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]
    assert "was canceled. It had been started" in result


PASTE = 'Traceback:\n  File "a.py"\n/usr/bin/python\n"""doc"""\nKeyError \\'


def said(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"] if message["role"] == "user"]


def test_a_paste_of_several_lines_is_one_message(stage: Stage) -> None:
    with scripted("A missing key.", "Yes.") as model, Terminal(stage, "chat", *model.flags) as terminal:
        terminal.wait_for("\x1b[?2004h")  # the terminal is told to mark pastes
        terminal.wait_for("›")
        terminal.type(f"\x1b[200~{PASTE}\x1b[201~")
        terminal.wait_for("KeyError")
        terminal.type("\n")
        terminal.wait_for("A missing key.")
        terminal.wait_for("›")
        terminal.type("Sure?\n")
        terminal.wait_for("Yes.")
        terminal.wait_for("›")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    assert [said(request) for request in model.requests] == [[PASTE], [PASTE, "Sure?"]]


def test_a_message_of_several_lines_can_be_typed(stage: Stage) -> None:
    with scripted("One.", "Two.") as model, Terminal(stage, "chat", *model.flags) as terminal:
        for keys in ("first \\\n", "second\n"):
            terminal.wait_for("› " if "first" in keys else "… ")
            terminal.type(keys)
        terminal.wait_for("One.")
        for keys in ('"""\n', "a\n", "\n", 'b"""\n'):
            terminal.wait_for("› " if keys == '"""\n' else "… ")
            terminal.type(keys)
        terminal.wait_for("Two.")
        terminal.wait_for("›")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    assert said(model.requests[1]) == ["first \nsecond", "a\n\nb"]


def test_ctrl_c_gives_up_a_message_of_several_lines(stage: Stage) -> None:
    with scripted("One.") as model, Terminal(stage, "chat", *model.flags) as terminal:
        terminal.wait_for("› ")
        terminal.type('"""wrong\n')
        terminal.wait_for("… ")
        terminal.interrupt("(Ctrl-D or /quit leaves)")
        terminal.wait_for("› ")
        terminal.type("right\n")
        terminal.wait_for("One.")
        terminal.wait_for("› ")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    assert said(model.requests[0]) == ["right"]


def test_messages_of_several_lines_come_through_a_pipe_too(stage: Stage) -> None:
    with scripted("One.", "Two.") as model:
        stage.run("chat", *model.flags, stdin=b'a \\\nb\n"""\nc\n\nd\n"""\n')
    assert said(model.requests[1]) == ["a \nb", "c\n\nd"]


def test_where_nothing_marks_a_paste_its_lines_are_one_message_too(stage: Stage) -> None:
    """Standard output is no terminal here, so no line editor is there that could be told."""
    with scripted("One.") as model, Terminal(stage, "chat", *model.flags, out=stage.folder / "out") as terminal:
        terminal.wait_for("› ")
        terminal.type("a\nb\nc\n")
        terminal.wait_for("tokens")
        terminal.wait_for("› ")
        terminal.type("\x04")
        assert terminal.end() == Exit.DONE
    assert said(model.requests[0]) == ["a\nb\nc"]
