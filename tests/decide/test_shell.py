"""What a shell text would run, read from its syntax tree."""

import pytest

from toolwire.decide.shell import LONGEST, UNKNOWN, read_shell


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("git status", [("git", "status")]),
        ("ls | grep -v 'a b' && echo done", [("ls",), ("grep", "-v", "a b"), ("echo", "done")]),
        ("r''m -rf x", [("rm", "-rf", "x")]),
        ('\\rm "x y"', [("rm", "x y")]),
        ("/bin/rm x", [("rm", "x")]),
        ("./rm x", [("./rm", "x")]),
        ("timeout 5 nice -n 3 rm x", [("rm", "x")]),
        ("ls $(rm x) `id`", [("ls", UNKNOWN, UNKNOWN), ("rm", "x"), ("id",)]),
        ("diff <(ls a) <(rm b)", [("diff", UNKNOWN, UNKNOWN), ("ls", "a"), ("rm", "b")]),
        ("(cd x && rm y); { rm z; }", [("cd", "x"), ("rm", "y"), ("rm", "z")]),
        ("for f in *; do rm $f; done", [("rm", UNKNOWN)]),
        ("cat <<EOF\n$(id)\nEOF", [("cat",), ("id",)]),
        ("! rm x", [("rm", "x")]),
        ("ls *.txt", [("ls", UNKNOWN)]),
    ],
)
def test_every_command_of_a_text_is_found(text: str, commands: list[tuple[str, ...]]) -> None:
    reading = read_shell(text)
    assert (list(reading.commands), reading.doubt) == (commands, "")


@pytest.mark.parametrize(
    "text",
    [
        "$(echo rm) -rf x",
        "x=rm; $x y",
        "eval ls",
        "echo cm0gLXJmIC8= | base64 -d | sh",
        "env -S 'rm x'",
        "env A=1 rm x",
        "LD_PRELOAD=./evil.so ls",
        "nice --adjustment=3 rm x",
        "xargs rm",
        "find . -delete",
        "sudo ls",
        "python3 -c 'print(1)'",
        "ls() { rm x; }; ls",
        "if",
        "echo 'open",
        "echo " + "a " * LONGEST,
    ],
)
def test_what_cannot_be_told_for_sure_is_in_doubt(text: str) -> None:
    assert read_shell(text).doubt


def test_files_that_redirections_write_are_named() -> None:
    assert read_shell("ls > a.txt 2>&1; ls >> b.txt; sort < c.txt").written == ("a.txt", "b.txt")


@pytest.mark.parametrize("text", ["", "\ud800", "\x00", "(" * 9_000, "$(" * 4_000, "<<A " * 2_000, "a;" * 5_000, "&&"])
def test_any_text_can_be_read(text: str) -> None:
    reading = read_shell(text)
    assert reading.doubt or reading.commands or not text.strip("\x00")
