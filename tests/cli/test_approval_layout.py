"""What a person sees of a change before it is approved: lines, and what goes and what comes."""

import pytest

from tests.cli.stage import Stage, Terminal
from toolwire.cli.entry.exits import Exit
from toolwire.cli.views.arguments import LONGEST, format_arguments

GRANTED = ("--tools", "coding", "--tier", "run", "--allow", "file_write", "--allow", "file_read")


def test_an_edit_is_shown_as_a_diff_at_the_terminal_and_in_the_list(stage: Stage) -> None:
    (stage.folder / "a.py").write_text("def g():\n    return 1\n")
    arguments = '{"path": "a.py", "old_text": "def g():\\n    return 1", "new_text": "def g():\\n    return 2"}'
    with Terminal(stage, "call", "edit", "--args", arguments, *GRANTED) as terminal:
        terminal.wait_for("changes:")
        terminal.wait_for("   def g():")
        terminal.wait_for("  -    return 1")
        terminal.wait_for("  +    return 2")
        terminal.wait_for("Run it?")
        terminal.type("y\n")
        assert terminal.end() == Exit.DONE
    assert (stage.folder / "a.py").read_text() == "def g():\n    return 2\n"
    arguments = arguments.replace("return 2", "return 3").replace("return 1", "return 2")
    assert stage.run("call", "edit", "--args", arguments, *GRANTED).code == Exit.WAITING
    assert "  -    return 2\n  +    return 3\n" in stage.run("approvals").out


def test_a_new_file_is_shown_line_by_line() -> None:
    shown = format_arguments({"path": "a.txt", "content": "one\ntwo\n"})
    assert shown == '{\n  "path": "a.txt"\n}\n"content":\n  +one\n  +two\n  +'


def test_a_command_of_several_lines_is_shown_as_such() -> None:
    assert format_arguments({"command": "cd a\nmake"}) == '"command":\n  | cd a\n  | make'


@pytest.mark.parametrize("text", ["x\nRun it? [y/N] y", "a\r\nb\n", "a\n\x1b[2Kb", "a\u2028b\nc", "a\n\u202eb"])
def test_no_line_of_a_text_can_pass_for_one_of_ours(text: str) -> None:
    for arguments in ({"content": text}, {"old_text": text, "new_text": "z"}, {"old_text": "z", "new_text": text}):
        lines = format_arguments(arguments).split("\n")
        assert all(line.startswith("  ") or line in ('"content":', "changes:") for line in lines), lines
        assert all(char.isprintable() for line in lines for char in line)


def test_an_edit_of_blanks_or_line_ends_alone_is_still_seen() -> None:
    assert '"old_text": "a"' in format_arguments({"old_text": "a", "new_text": "a"})
    shown = format_arguments({"old_text": "a", "new_text": "a\n"})
    assert shown.endswith("   a\n  +")


def test_of_a_long_text_both_ends_are_shown_and_what_is_missing_is_told() -> None:
    for arguments in (
        {"content": "first\n" + "x\n" * 50_000 + "last"},
        {"old_text": "first\n" * 9_000, "new_text": "last"},
    ):
        shown = format_arguments(arguments)
        assert len(shown) < LONGEST + 500
        assert "first" in shown
        assert "last" in shown
        assert "characters are not shown" in shown
        assert "has every character" in shown


FORGED = "This command only reads."


def forge(stage: Stage, name: str) -> None:
    (stage.folder / name).write_text("K=v\n", encoding="utf-8")
    stage.settings('[tools]\ngroups = ["shell"]\n[grant]\ntier = "run"\npermissions = ["shell"]\n')


def test_T139_the_name_of_a_file_adds_no_line_to_a_question(stage: Stage) -> None:
    forge(stage, f".env.x\n\n{FORGED}\n")
    with Terminal(stage, "call", "bash", "command=touch made") as terminal:
        seen = terminal.wait_for("Run it?")
        terminal.type("n\n")
        terminal.end()
    assert stage.run("call", "bash", "command=touch made").code == Exit.WAITING
    for lines in (seen.splitlines(), stage.run("approvals").out.splitlines()):
        assert any("can read the keys in .env.x" in line for line in lines)
        assert not [line for line in lines if line.strip().startswith(FORGED)]


def test_T139_control_an_ordinary_name_stands_in_the_question_as_it_is(stage: Stage) -> None:
    forge(stage, ".env.local")
    assert stage.run("call", "bash", "command=touch made").code == Exit.WAITING
    assert "The command can read the keys in .env.local." in stage.run("approvals").out
