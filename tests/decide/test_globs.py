"""Patterns of rules, against values and against patterns of the shell."""

import pytest

from toolwire import Grant, Tier, Tool
from toolwire.decide.fit import RuleMatch
from toolwire.decide.globs import ANY, ONE, STAR, fits, overlap
from toolwire.decide.matching import match_rule, normal
from toolwire.decide.paths import may_hold, rule_forms, spellings, whole_spellings
from toolwire.decide.shell import LONGEST, read_shell
from toolwire.decide.shell_words import is_wrapper
from toolwire.protocol.policy import Rule

OVERLAP = [
    ("abc", "a*"), ("", ""), ("", "*"), (STAR, ""), (STAR, "env"), (f"a{STAR}", "a.env"), (f"{ONE}b", "ab"),
    (ANY, ".env"), (ANY, "a/b"), (f"{ANY}c", "a/bc"), (f"a/{STAR}", "a/*"), (STAR, "*"), (f"a{STAR}c", "abbc"),
    (f"{STAR}/b", "a/b"), ("a" * 1_000, "b" * 201),
]  # fmt: skip
APART = [
    ("ab", "abc"), ("abc", "ab"), (STAR, ".env"), (f"a/{STAR}", "a/.env"), (ONE, "/"), (ONE, ""), (ONE, "ab"),
    (STAR, "a/b"), (f"{ONE}b", "b"), (ONE, ".") , ("a" * 1_000, "b" * 200),
]  # fmt: skip


@pytest.mark.parametrize(("glob", "pattern"), OVERLAP)
def test_some_path_fits_both_patterns(glob: str, pattern: str) -> None:
    assert overlap(glob, pattern) is True


@pytest.mark.parametrize(("glob", "pattern"), APART)
def test_no_path_fits_both_patterns(glob: str, pattern: str) -> None:
    assert overlap(glob, pattern) is False


@pytest.mark.parametrize(
    ("text", "pattern", "held"),
    [
        ("abc", "abc", True), ("abc", "ab", False), ("abc", "a*c", True), ("ac", "a*c", True), ("a", "a*a", False),
        ("aa", "a*a", True), ("abab", "*ab*ab", True), ("ab", "*ab*ab", False), ("xabc", "abc*", False),
        ("", "*", True),         ("abcbd", "a*b*b*d", True), ("abd", "a*b*b*d", False),
    ],
)  # fmt: skip
def test_a_star_stands_for_anything_and_nothing_is_used_twice(text: str, pattern: str, held: bool) -> None:
    assert fits(text, pattern) is held


@pytest.mark.parametrize(
    ("text", "plain"), [("a//b", "a/b"), ("a/../b", "b"), ("http://a//b", "http://a//b"), ("words", "words"), ("", "")]
)
def test_a_path_is_seen_without_detours_and_anything_else_as_it_is(text: str, plain: str) -> None:
    assert normal(text) == plain


def test_a_path_is_spelled_from_the_workspace_and_from_the_root() -> None:
    assert list(whole_spellings("a", "/x", ("/w",)))[-1] == "/w/a"
    assert list(whole_spellings("a", "/x", ()))[-1] == "/x"
    assert list(whole_spellings("a", "x", ("/w",))) == ["a", "a"]
    assert "a" in list(whole_spellings("/w/a", "x", ("/w",)))


@pytest.mark.parametrize("pattern", ["./a", ".//a", "././a", "a/", "*/a", "**/a"])
def test_a_pattern_is_understood_from_the_workspace(pattern: str) -> None:
    assert "a" in rule_forms(pattern, ())


def test_a_pattern_keeps_its_meaning_in_every_form() -> None:
    assert rule_forms("/", ()) == ("/",)
    assert "*b" in rule_forms("*b/", ())
    assert "*a" in rule_forms("./*a", ())
    assert "b" in rule_forms("a/../b", ())
    assert "a/b" not in rule_forms("a/*/../b", ())


def test_a_path_lies_in_all_folders_above_it() -> None:
    assert {"a/b/c", "a/b", "a"} <= set(spellings("a/b/c", "x", ()))


@pytest.mark.parametrize(
    ("folder", "pattern", "held"),
    [
        ("secrets", "secrets", True), ("secrets", "secrets/*", True), ("src", "secrets/*", False), (".", "a/b", True),
        ("a", "a/b/c", True), ("b", "a/b/c", False), ("/", "x", True), ("/w", "x", True), ("/etc", "/w/x", False),
        ("a", "*.env", True),
    ],
)  # fmt: skip
def test_a_folder_may_hold_what_a_pattern_means(folder: str, pattern: str, held: bool) -> None:
    assert may_hold(folder, pattern, ("/w",)) is held


def test_a_shell_text_may_be_so_long_and_no_longer() -> None:
    assert read_shell("a" * LONGEST).doubt == ""
    assert "longer than" in read_shell("a" * (LONGEST + 1)).doubt


@pytest.mark.parametrize(
    ("words", "held"),
    [("timeout 5 ls", True), ("command ls", True), ("command -v ls", False), ("command -V ls", False), ("ls", False)],
)
def test_a_wrapper_runs_the_words_behind_it(words: str, held: bool) -> None:
    assert is_wrapper(words.split()) is held


PATCH, DIFF = (Tool(name, "", {"properties": {}}) for name in ("apply_patch", "git_diff"))
IN_W = Grant(Tier.RUN, roots=("/w",))


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "fit"),
    [
        ("deny read where path is secrets/*", DIFF, {"paths": ["secrets/k"]}, RuleMatch.YES),
        ("deny read where path is secrets/*", DIFF, {"paths": ["src"]}, RuleMatch.NO),
        ("deny read where path is secrets/*", DIFF, {"repository": "secrets", "paths": ["k"]}, RuleMatch.YES),
        ("deny read where path is secrets/*", DIFF, {}, RuleMatch.NO),
        ("ask write where path is *.lock", PATCH, {"patch": "x"}, RuleMatch.MAYBE),
        ("deny write where path is *.lock", PATCH, {"patch": "x"}, RuleMatch.NO),
        ("deny apply_patch where path is *.lock", PATCH, {"patch": "x"}, RuleMatch.MAYBE),
        ("deny apply_patch", PATCH, {"patch": "x"}, RuleMatch.YES),
        ("deny echo", PATCH, {"patch": "x"}, RuleMatch.NO),
    ],
)
def test_a_rule_about_a_path_means_tools_that_name_files_in_their_own_way(
    rule: str, tool: Tool, arguments: dict[str, object], fit: RuleMatch
) -> None:
    assert match_rule(Rule.parse(rule), tool, arguments, None, IN_W) is fit
