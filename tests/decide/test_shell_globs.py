"""The patterns of a shell text, as they are read and as they find what a rule denies."""

import pytest

from toolwire.decide.globs import ANY, ONE, STAR
from toolwire.decide.shell import read_shell
from toolwire.decide.shell_globs import listed_folders, may_list

SIGNS = str.maketrans({"*": STAR, "?": ONE, "…": ANY})
FOUR = "{a,b,c,d}"


@pytest.mark.parametrize(
    ("text", "globs"),
    [
        ("ls '*' \"a?\" a\\*", []),
        ("ls a\\?b* \"c\"* '[d]'*", ["a\\b*", "c*", "[d]*"]),
        ('ls "$x"* $(y)? a$z*', ["…*", "…?", "a…*"]),
        ("ls [ab]c a[!b]*", ["?c", "a?*"]),
        ("ls **/x a***", ["…*/x", "a…*"]),
        ("ls ~/x* ~* a~/y*", ["…/x*", "…*", "a~/y*"]),
        ("cat ${x:-a/*}", ["a/*"]),
        ("cat p${x:-a/*}", ["…a/*…"]),
        ("ls {a,b}* x{c,{d,e}}?", ["a*", "b*", "xc?", "xd?", "xe?"]),
        ("ls {a}* {b* c}*", ["{a}*", "{b*", "c}*"]),
        ("ls x{1..3}y", ["x*y"]),
        ("ls x{1..3}*", ["x…*"]),
        ("x=$(echo 'a*' '\\052b')", []),
        ("ls $(echo 'a*' '\\052b')", ["a*", "…*"]),
        ("for x in a*; do cat $x; done", ["a*"]),
        (f"ls {FOUR * 4}{{a,b}}*", ["…*"]),
    ],
)
def test_the_shell_replaces_patterns_and_nothing_that_is_quoted(text: str, globs: list[str]) -> None:
    expected = [one.translate(SIGNS).replace("\\", "?") for one in globs]
    assert [*read_shell(text).globs] == expected


def test_as_many_words_of_braces_as_are_looked_at_are_read_one_by_one() -> None:
    assert len(read_shell(f"ls {FOUR * 4}*").globs) == 256


@pytest.mark.parametrize(
    ("glob", "pattern", "place", "lists"),
    [
        ("secrets/*", "secrets/**/k*.pem", "", True),
        ("secrets/*", "secrets/*", "", True),
        ("*", "secrets/*", "secrets", True),
        ("*", "secrets/*", "src", False),
        ("src/*", "secrets/**/k*.pem", "", False),
        ("s*/k.pem", "secrets/**/k*.pem", "", True),
        ("s*/k.txt", "secrets/**/k*.pem", "", False),
        ("…/../secrets/*", "secrets/*", "src", True),
        ("../secrets/*", "secrets/*", "src", True),
        ("/w/secrets/*", "secrets/*", "src", True),
        ("/workspace/s*/k", "secrets/*", "src", True),
        ("/other/secrets/*", "secrets/*", "src", False),
        ("/proc/self/cwd/*", "secrets/*", "src", True),
        ("/p*/self/fd/3", "secrets/*", "src", True),
    ],
)
def test_a_pattern_finds_what_a_rule_denies_from_where_it_is_meant(
    glob: str, pattern: str, place: str, lists: bool
) -> None:
    assert may_list([glob.translate(SIGNS)], pattern, [place], ["/w"]) is lists


def test_the_shell_looks_into_every_folder_of_a_pattern() -> None:
    assert listed_folders([one.translate(SIGNS) for one in ("a/b?/*", "*", "a/…/c")]) == [
        one.translate(SIGNS) for one in ("a", "a/b*", "a/*")
    ]
