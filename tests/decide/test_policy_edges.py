"""Grants that are shared or taken up again, and rulings at their edges."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Effect, Grant, Tier, Tool, tool
from toolwire.decide.policy import grant_of_resumed, narrow_grant, ruling
from toolwire.protocol.policy import Autonomy, Rule, Verdict


def made(name: str = "act", **options: Any) -> Tool:
    def run(path: str = "", command: str = "") -> str:
        """Act."""
        return path + command

    own = {key: options.pop(key) for key in ("must_ask", "trial_box") if key in options}
    return replace(tool(run, name=name, **options), **own)


def far(arguments: Mapping[str, Any], roots: Sequence[str]) -> str:
    """A tool's own question: it asks about what lies in `far`."""
    return "It is far away." if str(arguments.get("path", "")).startswith("far") else ""


def grant(*rules: str, **more: Any) -> Grant:
    return Grant(
        **{"tier": Tier.RUN, "permissions": frozenset({"shell", "file_read"}), **more},
        rules=tuple(map(Rule.parse, rules)),
    )


@pytest.mark.parametrize(
    ("some", "others", "shared"),
    [
        (("/a",), ("/a",), ("/a",)),
        (("/a",), ("/a/b",), ("/a/b",)),
        (("/a/b",), ("/a",), ("/a/b",)),
        (("/a",), ("/ab",), ()),
        (("/",), ("/x", "/y"), ("/x", "/y")),
        (("/a", "/b/c"), ("/b", "/d"), ("/b/c",)),
    ],
)
def test_two_grants_share_the_folders_that_lie_in_both(
    some: tuple[str, ...], others: tuple[str, ...], shared: tuple[str, ...]
) -> None:
    assert narrow_grant(Grant(roots=some), Grant(roots=others)).roots == shared


def test_two_grants_share_the_lower_tier_the_fewer_calls_and_the_permissions_of_both() -> None:
    one = Grant(tier=Tier.RUN, permissions=frozenset({"a", "b"}), max_calls=9, autonomy=Autonomy.FULL)
    other = Grant(tier=Tier.WALK, permissions=frozenset({"b", "c"}), max_calls=5, autonomy=Autonomy.READONLY)
    for shared in (narrow_grant(one, other), narrow_grant(other, one)):
        assert (shared.tier, shared.permissions, shared.max_calls, shared.autonomy) == (
            Tier.WALK,
            frozenset({"b"}),
            5,
            Autonomy.READONLY,
        )


def test_a_resumed_turn_keeps_a_folder_whole_or_not_at_all() -> None:
    own = Grant(roots=("/a/b", "/c", "/d"))
    assert grant_of_resumed(own, Grant(roots=("/a", "/c/inner", "/d"))).roots == ("/a/b", "/d")


@pytest.mark.parametrize(
    ("some", "others", "shared"),
    [({"*"}, {"a"}, {"a"}), ({"a", "b"}, {"*"}, {"a", "b"}), ({"a", "b"}, {"b", "c"}, {"b"}), ({"a"}, {"b"}, set())],
)
def test_two_grants_share_what_both_have_confirmed(some: set[str], others: set[str], shared: set[str]) -> None:
    assert narrow_grant(Grant(confirmed=frozenset(some)), Grant(confirmed=frozenset(others))).confirmed == shared


def test_of_two_grants_the_wary_one_counts_and_a_rule_that_allows_must_be_in_both() -> None:
    assert [
        narrow_grant(Grant(wary=one), Grant(wary=other)).wary for one in (True, False) for other in (True, False)
    ] == [
        True,
        True,
        True,
        False,
    ]
    one, other = grant("allow act", "deny read"), grant("allow act", "allow write")
    assert set(map(str, narrow_grant(one, other).rules)) == {"allow act", "deny read"}


def test_what_a_tool_asks_about_itself_is_asked_whatever_is_confirmed() -> None:
    act, given = made(must_ask=far), grant(confirmed=frozenset({"*"}))
    asked = ruling(act, {"path": "far/x"}, given)
    assert (asked.verdict, asked.sentence, asked.wary) == (Verdict.ASK, "It is far away.", False)
    assert ruling(act, {"path": "near"}, given).verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        (["allow act where path is far/x"], Verdict.ALLOW),
        (["allow act where path is far/y"], Verdict.ASK),
        (["allow act where path is *"], Verdict.ASK),
        (["allow act"], Verdict.ASK),
        (["allow other where path is far/x"], Verdict.ASK),
        (["ask act where path is far/x"], Verdict.ASK),
    ],
)
def test_only_a_rule_that_names_the_thing_itself_settles_such_a_question(rules: list[str], verdict: Verdict) -> None:
    ruled = ruling(made(must_ask=far), {"path": "far/x"}, grant(*rules))
    assert ruled.verdict is verdict
    if verdict is Verdict.ALLOW:
        assert ruled.rule == Rule.parse(rules[0])


def test_in_a_tainted_turn_not_even_that_rule_settles_it() -> None:
    named = grant("allow act where path is far/x", wary=True)
    ruled = ruling(made(must_ask=far), {"path": "far/x"}, named, tainted=True)
    assert (ruled.verdict, ruled.wary) == (Verdict.ASK, True)
    calm = ruling(
        made(must_ask=far), {"path": "far/x"}, grant("allow act where path is far/x", wary=False), tainted=True
    )
    assert calm.verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({"tier": Tier.RUN}, True),
        ({"tier": Tier.CRAWL, "needs": {"network"}}, True),
        ({"tier": Tier.CRAWL, "needs": {"file_read"}}, False),
        ({"tier": Tier.RUN, "effect": Effect.PURE}, False),
    ],
)
def test_a_tainted_turn_asks_before_anything_runs_or_goes_out(options: dict[str, Any], asks: bool) -> None:
    given = grant(wary=True, confirmed=frozenset({"*"}), permissions=frozenset({"network", "file_read"}))
    ruled = ruling(made(**options), {}, given, tainted=True)
    assert (ruled.verdict is Verdict.ASK, ruled.wary) == (asks, asks)
    assert ruling(made(**options), {}, given).verdict is Verdict.ALLOW


def test_a_turn_that_may_only_look_changes_nothing_and_looks_freely() -> None:
    looking = grant(autonomy=Autonomy.READONLY)
    assert ruling(made(tier=Tier.CRAWL), {}, looking).verdict is Verdict.DENY
    assert ruling(made(tier=Tier.CRAWL, effect=Effect.PURE), {}, looking).verdict is Verdict.ALLOW
    assert ruling(made(tier=Tier.CRAWL), {}, grant()).verdict is Verdict.ALLOW
    assert ruling(made(tier=Tier.RUN), {}, grant()).verdict is Verdict.ASK


def test_a_command_that_may_be_tried_first_is_tried_and_asked_about_afterwards() -> None:
    trying = made(tier=Tier.RUN, needs={"shell"}, trial_box=True)
    given = {"command": "make"}
    ruled = ruling(trying, given, grant())
    assert (ruled.verdict, ruled.tries) == (Verdict.ASK, True)
    assert not ruling(trying, given, grant(confirmed=frozenset({"*"}))).tries
    assert not ruling(made(tier=Tier.RUN, needs={"shell"}), given, grant()).tries
    strict = made(tier=Tier.RUN, needs={"shell"}, trial_box=True, requires_confirmation=True)
    assert not ruling(strict, given, grant()).tries
    looking = ruling(trying, given, grant(autonomy=Autonomy.READONLY))
    assert (looking.verdict, looking.tries) == (Verdict.DENY, True)
    assert looking.sentence == "'act' wanted to change things, and this turn may only look."


def test_a_command_that_needs_the_network_is_refused_unless_it_stays_in_a_box() -> None:
    boxed, unboxed = (made(tier=Tier.RUN, needs={"shell"}, sandbox=kind) for kind in ("bubblewrap", "none"))
    local, away = {"command": "curl http://127.0.0.1:8000/"}, {"command": "curl http://good.example/"}
    assert ruling(boxed, local, grant()).verdict is Verdict.ASK
    assert ruling(unboxed, local, grant()).verdict is Verdict.DENY
    assert ruling(boxed, away, grant()).sentence == "'curl' needs network, which this turn does not have."
    assert ruling(boxed, {"command": "curl --version"}, grant()).verdict is Verdict.ASK


def test_a_file_that_usually_holds_keys_is_shown_only_on_request() -> None:
    read = made("read", tier=Tier.CRAWL, needs={"file_read"}, effect=Effect.PURE)
    ruled = ruling(read, {"path": ".ssh/id_rsa"}, grant())
    assert (ruled.verdict, ruled.sentence) == (
        Verdict.ASK,
        "'read' would show a file that usually holds keys or passwords.",
    )
    assert ruling(read, {"path": "README.md"}, grant()).verdict is Verdict.ALLOW
    assert (
        ruling(made("read", tier=Tier.CRAWL, effect=Effect.PURE), {"path": ".ssh/id_rsa"}, grant()).verdict
        is Verdict.ALLOW
    )
