"""What a shell text would run, read from its syntax tree."""

import pytest

from toolwire.decide.reading import only_reads
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


@pytest.mark.threat("T26")
@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("exec -a ls rm x", ("rm", "x")),
        ("exec -als rm x", ("rm", "x")),
        ("env -uC rm ls", ("rm", "ls")),
        ("nice -n5 -- rm x", ("rm", "x")),
        ("git > /dev/null push", ("git", "push")),
        ("rm < a -rf x", ("rm", "-rf", "x")),
        ("r\\\nm x", ("rm", "x")),
        ("command -v rm", ("command", "-v", "rm")),
    ],
)
def test_no_way_of_writing_it_hides_which_command_runs(text: str, command: tuple[str, ...]) -> None:
    assert read_shell(text).commands == (command,)


@pytest.mark.threat("T26")
@pytest.mark.parametrize(
    "text",
    [
        "env -a ls rm x",
        "/usr/bin/time -o ls rm x",
        "for PATH in .; do ls; done",
        "[[ 'a[$(rm x)]' -eq 0 ]]",
        "[ -v 'a[$(rm x)]' ]",
        "[ a > x ]",
        "for f in 'a[$(rm x)]'; do echo $((f)); done",
        "echo ${f@P}",
        "echo ${PATH:=.}",
        "unset PATH",
        "((PATH=1))",
        "coproc rm x",
        "ls\rrm x",
        "# a\\\nrm x",
        "echo ${HOME%$(rm x)}",
        "echo ${HOME##$(rm x)}",
        "echo ${HOME^^$(rm x)}",
        'echo "${HOME%`rm x`}"',
        "echo ${HOME/`rm x`/}",
        "echo ${x:-`rm x`}",
        "echo ${x:-<(rm x)}",
        "echo ${x:-${y:-`rm x`}}",
        "echo \"${x:-'$(rm x)'}\"",
        "echo `echo \\`rm x\\``",
        "cat <<E\n`rm x`\nE",
        "cat <<-E\n\t$(rm x)\n\tE",
        "cat <<$E\n$(rm x)\n$E",
        "test -v 'a[$(rm x)]'",
        "test ${x:--v} 'a[$(rm x)]'",
        "printf -v 'a[$(rm x)]' y",
        "read 'a[$(rm x)]'",
    ],
)
def test_syntax_that_can_hide_an_effect_is_in_doubt(text: str) -> None:
    assert read_shell(text).doubt


@pytest.mark.parametrize(
    "text",
    [
        "cat <<'E'\n`rm x` $(rm x)\nE",
        "cat <<\\E\n$(rm x)\nE",
        "cat <<E\nhello $USER\nE",
        "echo 'a `b` $(c)'",
        "echo \\`a",
        'echo "a \\$(b)"',
        "echo ${x:-y} ${x%.txt} ${x##*/}",
        "printf '%s' \"$x\"",
        "test -f a",
    ],
)
def test_what_the_shell_takes_as_it_stands_is_in_no_doubt(text: str) -> None:
    assert read_shell(text).doubt == ""


@pytest.mark.parametrize(
    ("text", "written"), [("ls >& x", ("x",)), ("ls >&2", ()), ("ls 2>/dev/null", ()), ("ls > a -l", ("a",))]
)
def test_a_copy_of_a_stream_writes_no_file_and_nothing_is_written_nowhere(text: str, written: tuple[str, ...]) -> None:
    assert read_shell(text).written == written


@pytest.mark.parametrize(
    ("text", "word"),
    [('echo "a\\nb"', "a\\nb"), ('echo "a\\$b"', "a$b"), ('echo "  "', "  "), ("git HEAD~1", "HEAD~1")],
)
def test_a_word_is_what_the_shell_would_hand_over(text: str, word: str) -> None:
    assert read_shell(text).commands[0][1:] == (word,)


@pytest.mark.threat("T26")
@pytest.mark.parametrize("letter", ["\U000c0000", "\U00028000", "\U0010ffff", "\ud800", "é"])
@pytest.mark.parametrize("before", ["${", "${!", "$", "", "<<", "[[ a =~ ", "a=", "case ", "$(("])
def test_no_letter_takes_the_process_with_it(before: str, letter: str) -> None:
    """The parser reads outside of its tables for some letters, and would end the whole process."""
    read_shell(f"{before}{letter}")
    read_shell(f"echo {before}{letter} a }}")


@pytest.mark.parametrize("text", ["git commit -m 'grün'", 'echo "日本" grün', "rm ñ", "gît status", "echo \ud800x"])
def test_words_in_any_script_are_read_as_they_are(text: str) -> None:
    name, *rest = text.replace("'", "").replace('"', "").split()
    assert read_shell(text).commands == ((name, *rest),)


@pytest.mark.parametrize(("text", "doubted"), [("é=1; ls", False), ("$é", True), ("echo {aéb}", False)])
def test_letters_of_other_scripts_are_no_part_of_names(text: str, doubted: bool) -> None:
    assert bool(read_shell(text).doubt) is doubted


@pytest.mark.threat("T26")
@pytest.mark.parametrize(
    "text",
    [
        "ls\n\\rm x",
        "echo a b\n\\rm -rf build",
        "ls -l | wc\n\n\\rm x\nls",
        "echo ==&rm>}",
        "echo =~;rm x>}",
        "''\\rm x",
        "ls && sort a 2>&1 -o rm",
        "{ sort a; } >&2 -o rm",
        "sort <<E -o rm\nE\n",
        "cat <<E\nE #x $(rm y)",
        "cat <<E\n1$x!do`r''m y`",
        "cat <<E\n\\a x[ #b*; c[$(rm y)]=1\nE\n",
        "time x=1 rm y",
        "time ! rm y",
        "sort a>&2 ``-o rm",
        "{rm,-rf,x}\n}",
        "ls ${x/{a,b}>rm [ }",
        "ls ${x/{a};rm y }",
        "ls; exec 0<y rm z",
        "0>&2 rm z",
        ">|y$x\\`export \\rm z",
        "\\ #then q [$(rm y)]=1 [ ",
    ],
)
def test_the_end_of_a_command_is_not_taken_for_a_part_of_its_words(text: str) -> None:
    """The parser takes these for one command with more words."""
    reading = read_shell(text)
    assert reading.doubt or any("rm" in words[0] for words in reading.commands)
    assert not only_reads(reading)
