"""Which tools a rule means beside those that it names."""

import pytest

from toolwire.decide.families import (
    CHANGING,
    FETCHING,
    LISTING,
    SHOWING,
    RuleReach,
    every_name,
    reach,
    shows_key_files,
    tools_like_it,
)
from toolwire.protocol.policy import Rule, Verdict


def about(permission: str, argument: str) -> Rule:
    return Rule(Verdict.DENY, frozenset(), argument=argument, pattern="x", permission=permission)


READ, LIST, WRITE, FETCH = (
    Rule.parse(f"deny {tool} where {argument} is x")
    for tool, argument in (("read", "path"), ("list", "path"), ("write", "paths"), ("webfetch", "url"))
)


@pytest.mark.parametrize(
    ("name", "others"),
    [("bash", {"job_start"}), ("job_start", set()), ("read", {"read_file"}), ("list_dir", {"list"}), ("own", set())],
)
def test_a_rule_follows_a_tool_to_its_other_names(name: str, others: set[str]) -> None:
    assert every_name(frozenset({name})) == {name} | others


@pytest.mark.parametrize(
    ("rule", "reached"),
    [
        (READ, RuleReach.CONTENT | RuleReach.NAMES), (LIST, RuleReach.NAMES),
        (WRITE, RuleReach.CHANGES), (FETCH, RuleReach.PAGES),
        (about("file_read", "path"), RuleReach.CONTENT | RuleReach.NAMES),
        (about("file_write", "path"), RuleReach.CHANGES),
        (about("network", "url"), RuleReach.PAGES), (about("network", "path"), RuleReach.NOTHING),
        (about("file_read", "url"), RuleReach.NOTHING), (about("file_read", "content"), RuleReach.NOTHING),
        (Rule.parse("deny echo where path is x"), RuleReach.NOTHING), (Rule.parse("deny read"), RuleReach.NOTHING),
    ],
)  # fmt: skip
def test_a_rule_is_about_content_names_changes_or_pages(rule: Rule, reached: RuleReach) -> None:
    assert reach(rule) == reached


def test_a_rule_means_all_tools_that_could_do_the_same() -> None:
    shown_by_changes = {"edit", "edit_block", "apply_patch"}
    assert tools_like_it(READ) == SHOWING | shown_by_changes | LISTING
    assert tools_like_it(LIST) == LISTING
    assert tools_like_it(WRITE) == CHANGING
    assert tools_like_it(FETCH) == FETCHING
    assert tools_like_it(Rule.parse("deny echo where path is x")) == frozenset()


@pytest.mark.parametrize(
    ("tool", "arguments", "shows"),
    [
        ("read", {"path": ".env"}, True), ("read", {"paths": ["a", ".env"]}, True), ("edit", {"path": ".env"}, True),
        ("write", {"path": ".env"}, False), ("list", {"path": ".env"}, False), ("read", {"path": "a"}, False),
        ("read", {"path": 3}, False), ("read", {}, False), ("read", {"query": ".env"}, False),
    ],
)  # fmt: skip
def test_a_call_that_would_show_a_file_with_keys_is_noticed(
    tool: str, arguments: dict[str, object], shows: bool
) -> None:
    assert shows_key_files(tool, arguments) is shows
