"""Ctrl-Z and `fg` in a chat, in a real shell with job control at a real terminal."""

from pathlib import Path

import pytest

from tests.cli.stage import Script, Stage, Terminal, scripted


class Shell(Stage):
    """A stage on which a shell is started in place of `toolwire`."""

    def command(self, *words: str) -> list[str]:
        return ["bash", "--norc", "--noprofile", "-i", *words]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def chat(terminal: Terminal, stage: Stage, model: Script) -> None:
    [program, *words] = Stage(stage.folder).command("chat", *model.flags)
    terminal.type(f"{program} {' '.join(words)}\n")
    terminal.wait_for("Ctrl-D quits")
    terminal.wait_for("› ")


def stop(terminal: Terminal) -> None:
    terminal.press("\x1a", "Stopped")
    terminal.wait_for("$ ")


def test_fg_shows_the_prompt_with_what_was_typed_and_goes_on_from_there(shell: Shell) -> None:
    with scripted("One.", "Two.") as model, Terminal(shell, PS1="$ ") as terminal:
        chat(terminal, shell, model)
        terminal.type("half a")
        terminal.wait_for("half a")
        stop(terminal)
        terminal.type("fg\n")
        terminal.wait_for("› half a")
        terminal.type(" question\x01Say \r")
        terminal.wait_for("One.")
        terminal.wait_for("› ")
        stop(terminal)
        terminal.type("fg\n")
        terminal.wait_for("› ")
        terminal.type("More\r")
        terminal.wait_for("Two.")

    asked = [request["messages"][-1]["content"] for request in model.requests]
    assert asked == ["Say half a question", "More"]


def test_the_shell_gets_a_terminal_that_shows_what_is_typed(shell: Shell) -> None:
    with scripted("One.") as model, Terminal(shell, PS1="$ ") as terminal:
        chat(terminal, shell, model)
        stop(terminal)
        terminal.type("stty -a\n")
        assert " icanon" in terminal.wait_for(" icanon")
        terminal.wait_for(" echo ")


def test_an_answer_that_was_stopped_goes_on_after_fg(shell: Shell) -> None:
    with scripted("It is here.") as model, Terminal(shell, PS1="$ ") as terminal:
        gate = model.gates.setdefault(1, type(model.go_on)())
        chat(terminal, shell, model)
        terminal.type("Hello\r")
        model.wait_for_request(terminal.process)
        stop(terminal)
        gate.set()
        terminal.type("fg\n")
        terminal.wait_for("It is here.")
        terminal.wait_for("› ")
