"""The syntax around commands: what does nothing by itself, what can hide an effect, and what is in doubt."""

import pytest

from toolwire.decide.shell import read_shell

TWO_WAYS = "a part of it can be read in two ways"
UNSEEN = "a part of it is made when it runs, in a way that is not looked into"
HEREDOC = "where its here-document ends can be read in two ways"
TEST = "a test can run what its words hold"
SUM = "a sum with variables can run what they hold"
LOOP = "a loop sets a variable of the shell's own"
INVALID = "the text is not valid shell"


@pytest.mark.parametrize(
    "text",
    [
        *("# x\nls", "ls\n# x\nls", "ls\n  # x", "ls &&\n# x\npwd"),
        *("{ a; }", "{ a;}", "{\na\n}", "(ls)", "if ls; then pwd; fi", "echo `ls`", 'echo "a`b`"', "ls\\\n-a"),
        *("[ a -eq b ]", "[[ a == b ]]", "[ a = b ]", '[ "$x" = b ]', "[[ a < b ]]", "[ -f a ]", "[[ -f $x ]]"),
        *("for x in a; do ls; done", "for x in $A; do ls; done", "echo $((1+2))", f"echo $((1{'+1' * 60}))"),
        *("echo ${x:-$(rm)}", "echo $((1+2)) $((3))", "echo [a$(b)]"),
    ],
)
def test_a_plain_text_does_nothing_but_run_its_commands(text: str) -> None:
    reading = read_shell(text)
    assert (reading.plain, reading.sure, reading.doubt) == (True, True, "")


@pytest.mark.parametrize(
    "text",
    [
        *("ls # x", "ls; # x", "cat <<'E'\na `b`\nE", "cat <<\\E\n`a`\nE", "cat <<E\na\nE", "cat <<E\na $(b)\nE"),
        *("cat <<E | grep x\na\nE", "cat <<E > f\na\nE", "cat <<E && ls\na\nE", "cat <<E\na\nE\nls", "cat <<E\nE"),
        *("cat <<E || ls\na\nE", "cat <<E\nE\nE"),
    ],
)
def test_a_text_with_other_syntax_still_runs_these_commands_and_no_others(text: str) -> None:
    reading = read_shell(text)
    assert (reading.plain, reading.sure, reading.doubt) == (False, True, "")


@pytest.mark.parametrize(
    ("doubt", "texts"),
    [
        (TWO_WAYS, ["{a;}", "echo a\n\\ls", "echo a`b`c$d", "echo ${x:-`rm`}", "echo ${x:-<(rm)}", "echo ${x:->(rm)}"]),
        (
            UNSEEN,
            [
                *("cat <<E\na `b`\nE", "cat <<E\n$x `b`\nE", "cat <<E\n`b`\nE", "echo \"${x:-'$(rm)'}\""),
                "echo `echo \\`rm\\``",
            ],
        ),
        (
            HEREDOC,
            [
                *("ls <<E extra\na\nE", "cat <<E\na\nE ", "cat <<E\na\n E\nE", "cat <<E-F\na\nE-F"),
                "cat <<E\n\\`b\\`\nE",
            ],
        ),
        (TEST, ["[[ a -eq b ]]", "[[ -v a ]]", "[ -v a ]", "[[ -R a ]]", "[ $x = b ]", "[ a > b ]", "[ a < b ]"]),
        (TEST, [f"[[ {' && '.join(['a = b'] * 45)} ]]"]),
        (SUM, ["echo $((a+2))", f"echo $((1{'+1' * 110}))"]),
        (LOOP, ["for PATH in a; do ls; done", "for histchars in a; do ls; done", "for _ in a; do ls; done"]),
        (INVALID, ["{ls,a}", "cat <<E <<F\na\nE\nF", "cat <<E\na\nEx"]),
    ],
)
def test_what_can_hide_an_effect_is_in_doubt_with_its_reason(doubt: str, texts: list[str]) -> None:
    found = {text: read_shell(text) for text in texts}
    assert {text: reading.doubt for text, reading in found.items()} == dict.fromkeys(texts, doubt)
    assert not any(reading.sure or reading.plain for reading in found.values())
