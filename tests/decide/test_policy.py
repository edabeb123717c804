"""The operator's rules: deny is final, asking wins over allowing, silence leaves it to the grant's autonomy."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire import Effect, Grant, Tier, Tool, Toolbox, ToolCall
from toolwire.decide.ladder import Case, decide, explain
from toolwire.decide.policy import narrow_grant, ruling
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval
from toolwire.protocol.policy import Autonomy, Rule, Verdict
from toolwire.toolbox.registry import ToolDependencies, tools_of
from toolwire.wire.codecs.stored import read_grant, write_grant

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
TEXT = {"type": "string"}
BASH = Tool("bash", "Run.", {"properties": {"command": TEXT}}, tier=Tier.RUN, needs=frozenset({"shell"}))
WRITE = Tool("write", "Write.", {"properties": {"path": TEXT}}, tier=Tier.RUN, needs=frozenset({"file_write"}))
LOOK = Tool("look", "Look.", {"properties": {"path": TEXT}}, tier=Tier.CRAWL, effect=Effect.PURE)
TOOLS = Toolbox.of(BASH, WRITE, LOOK)
FREE = Grant(tier=Tier.RUN, permissions=frozenset({"shell", "file_write"}), roots=("/w",))


def rule(verdict: Verdict, *tools: str, **more: Any) -> Rule:
    return Rule(verdict, frozenset(tools), **more)


def command(verdict: Verdict, pattern: str) -> Rule:
    return rule(verdict, "bash", argument="command", pattern=pattern)


def judged(name: str, *rules: Rule, grant: Grant = FREE, **arguments: Any) -> object:
    return type(decide(Case(ToolCall(name, arguments, id="c"), TOOLS, replace_rules(grant, rules))))


def replace_rules(grant: Grant, rules: tuple[Rule, ...]) -> Grant:
    return read_grant({**write_grant(grant), "rules": [*write_grant(replace(grant, rules=rules))["rules"]]})


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        ((), NeedsApproval),
        ((rule(ALLOW, "write"),), Allowed),
        ((rule(ALLOW, "write"), rule(ASK, "write")), NeedsApproval),
        ((rule(ASK, "write"), rule(ALLOW, "write"), rule(DENY, "write")), Denied),
        ((rule(DENY, permission="file_write"), rule(ALLOW, "write")), Denied),
        ((rule(ALLOW, "writ"), rule(ALLOW, "WRITE"), rule(ALLOW, "*")), NeedsApproval),
        ((rule(ALLOW, "write", argument="path", pattern="docs/*"),), Allowed),
        ((rule(ALLOW, "write", argument="path", pattern="docs/b*"),), NeedsApproval),
        ((rule(ALLOW, "write"), rule(DENY, "write", argument="path", pattern="docs/*")), Denied),
    ],
)
def test_deny_is_final_and_asking_wins_over_allowing(rules: tuple[Rule, ...], outcome: type) -> None:
    assert judged("write", *rules, path="docs/a.md") is outcome


@pytest.mark.parametrize("path", ["docs/../.env", "./.env", ".ENV", "docs//../.env", ".env"])
def test_no_detour_or_spelling_gets_around_a_denied_path(path: str) -> None:
    assert judged("write", rule(DENY, "write", argument="path", pattern=".env"), path=path) is Denied


def test_an_allowed_path_is_not_left_by_a_detour() -> None:
    allowed = rule(ALLOW, "write", argument="path", pattern="docs/*")
    assert judged("write", allowed, path="docs/../secrets") is NeedsApproval


@pytest.mark.threat("T26")
@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("git status", Allowed),
        ("git status -s | head -3", Allowed),
        ("git status; git push", NeedsApproval),
        ("git status > x", NeedsApproval),
        ("./git status", NeedsApproval),
        ("git -c core.pager=x status", NeedsApproval),
        ("git status $(touch x)", NeedsApproval),
        ("GIT_DIR=x git status", NeedsApproval),
        ("git stat*", NeedsApproval),
        ("rm x", Denied),
        ("git status && /bin/rm x", Denied),
        ("timeout 3 ./rm x", Denied),
        ("echo $(r''m x)", Denied),
    ],
)
@pytest.mark.feature("F123")
def test_a_shell_text_is_judged_by_every_command_in_it(text: str, outcome: type) -> None:
    rules = (command(ALLOW, "git status"), command(ALLOW, "head"), command(DENY, "rm"))
    grant = replace(FREE, permissions=FREE.permissions | {"network"})
    assert judged("bash", *rules, grant=grant, command=text) is outcome


@pytest.mark.threat("T26")
@pytest.mark.parametrize("text", ["eval ls", "x() { ls; }; x", "echo 'open", "ls " + "a" * 20_000])
def test_a_text_that_cannot_be_told_is_asked_about_where_some_commands_are(text: str) -> None:
    rules = (rule(ALLOW, "bash"), command(ASK, "curl"))
    assert judged("bash", *rules, command=text) is NeedsApproval
    assert judged("bash", rule(ALLOW, "bash"), command=text) is Allowed


@pytest.mark.threat("T26")
@pytest.mark.parametrize(
    "text",
    [
        *(
            "eval rm x",
            "sh -c 'rm x'",
            "flock l rm x",
            "strace -f /bin/rm x",
            "$(echo rm) x",
            "env A=1 rm x",
            "xargs rm",
        ),
        *("find . -exec rm {} +", "tar --to-command=rm -xf a", "vim -c '!rm x'", "coproc rm x", "x=rm; $x y"),
    ],
)
def test_a_command_that_may_be_a_denied_one_is_asked_about_even_at_full_autonomy(text: str) -> None:
    full = replace(FREE, autonomy=Autonomy.FULL)
    assert judged("bash", command(DENY, "rm"), grant=full, command=text) is NeedsApproval
    assert judged("bash", grant=full, command=text) is Allowed


@pytest.mark.parametrize("text", ["git -C . push", "git -c a=b push", "git $(echo push)", "git p*", "flock l git push"])
@pytest.mark.parametrize("verdict", [ASK, DENY])
def test_options_wrappers_and_made_words_do_not_hide_what_a_rule_is_about(text: str, verdict: Verdict) -> None:
    online = replace(FREE, autonomy=Autonomy.FULL, permissions=FREE.permissions | {"network"})
    assert judged("bash", command(verdict, "git push"), grant=online, command=text) is NeedsApproval


@pytest.mark.parametrize("text", ["grep -rn rm src", "echo rm", "find . -name rm", "git log --grep rm", "ls; cp a b"])
def test_a_word_that_no_command_runs_is_not_taken_for_a_denied_command(text: str) -> None:
    full = replace(FREE, autonomy=Autonomy.FULL)
    assert judged("bash", command(DENY, "rm"), grant=full, command=text) is Allowed


@pytest.mark.parametrize(
    ("pattern", "path"), [(".env", "/w/.env"), (".env", "/w/./a//../.env"), ("/w/.env", ".env"), ("/w/a/*", "a/b")]
)
def test_a_denied_path_is_denied_from_the_workspace_and_from_the_root_of_the_disk(pattern: str, path: str) -> None:
    full = replace(FREE, autonomy=Autonomy.FULL)
    assert judged("write", rule(DENY, "write", argument="path", pattern=pattern), grant=full, path=path) is Denied


def test_a_tool_that_names_its_files_in_another_way_is_asked_about_where_some_paths_are_denied() -> None:
    patch = next(tool for tool in tools_of(["coding"], ToolDependencies()) if tool.name == "apply_patch")
    grant = Grant(Tier.RUN, autonomy=Autonomy.FULL, rules=(Rule.parse("deny needs file_write where path is .env"),))
    assert ruling(patch, {"patch": "*** Begin Patch"}, grant).verdict is ASK


def test_an_allowed_host_is_not_found_in_the_path_of_another() -> None:
    fetch = Tool("webfetch", "", {"properties": {"url": TEXT}}, requires_confirmation=True)
    grant = Grant(rules=(Rule.parse("allow webfetch where url is https://*.good.example/docs/*"),))
    assert ruling(fetch, {"url": "https://www.good.example/docs/a"}, grant).verdict is ALLOW
    for url in ("https://evil.example/.good.example/docs/a", "https://www.good.example/x/docs/a", "https://a"):
        assert ruling(fetch, {"url": url}, grant).verdict is ASK


def test_of_several_rules_that_ask_the_one_with_the_highest_quorum_counts() -> None:
    rules = (
        Rule.parse("ask bash"),
        Rule.parse("ask bash by 2 where command is git push"),
        Rule.parse("ask needs shell"),
    )
    for order in (rules, rules[::-1]):
        ruled = ruling(BASH, {"command": "git push"}, replace(FREE, rules=order, permissions=frozenset({"network"})))
        assert ruled.rule is not None
        assert ruled.rule.quorum == 2


@pytest.mark.feature("F123")
@pytest.mark.parametrize(
    "text", ["rm -rf /", "rm -r -f /*", "ls; mkfs.ext4 /dev/sda", "dd if=x of=/dev/sda", "shutdown now", "chmod -R 0 /"]
)
def test_commands_that_ruin_the_machine_are_refused_whatever_the_rules_say(text: str) -> None:
    full = replace(FREE, autonomy=Autonomy.FULL)
    assert judged("bash", rule(ALLOW, "bash"), grant=full, command=text) is Denied
    assert judged("bash", rule(ALLOW, "bash"), grant=full, command="rm -rf build") is Allowed


def test_the_real_shell_tools_are_judged_by_their_commands() -> None:
    tools = tools_of(["shell"], ToolDependencies())
    for tool in (one for one in tools if "command" in one.input_schema["properties"]):
        assert ruling(tool, {"command": "rm -rf /"}, replace(FREE, autonomy=Autonomy.FULL)).verdict is DENY


@pytest.mark.parametrize("text", ["curl x.org", "git clone https://x.test/y", "wget x; ls"])
def test_a_command_that_wants_the_network_needs_that_permission(text: str) -> None:
    assert judged("bash", rule(ALLOW, "bash"), command=text) is Denied
    online = replace(FREE, permissions=FREE.permissions | {"network"})
    assert judged("bash", rule(ALLOW, "bash"), grant=online, command=text) is Allowed


@pytest.mark.parametrize(
    ("autonomy", "outcome"),
    [(Autonomy.READONLY, Denied), (Autonomy.SUPERVISED, NeedsApproval), (Autonomy.FULL, Allowed)],
)
def test_where_no_rule_speaks_autonomy_does(autonomy: Autonomy, outcome: type) -> None:
    assert judged("write", grant=replace(FREE, autonomy=autonomy), path="a") is outcome
    assert judged("look", grant=replace(FREE, autonomy=autonomy), path="a") is Allowed


def test_an_explanation_names_the_rule_that_won() -> None:
    grant = replace(FREE, rules=(rule(DENY, "write", argument="path", pattern="*.lock", reason="Locks are made"),))
    climb = {rung.rule: rung for rung in explain(Case(ToolCall("write", {"path": "uv.lock"}), TOOLS, grant))}
    assert climb["policy"].verdict == "denied"
    assert "Locks are made (deny write where path is *.lock)" in climb["policy"].sentence


def test_a_host_that_either_grant_closes_stays_closed_for_a_sub_agent() -> None:
    one = replace(FREE, network=("*.example.org", "!bank.example.org", "a.net"))
    other = replace(FREE, network=("*.example.org", "!mail.example.org", "b.net"))
    assert narrow_grant(one, other).network == ("*.example.org", "!bank.example.org", "!mail.example.org")


NAMES = st.sampled_from(["bash", "write", "look"])
RULES = st.lists(
    st.builds(
        Rule,
        st.sampled_from(Verdict),
        st.frozensets(NAMES, min_size=1),
        st.sampled_from(["", "shell", "file_write"]),
        argument=st.sampled_from(["", "path", "command"]),
        pattern=st.text("ab/*. ", max_size=6),
    ),
    max_size=5,
)
GRANTS = st.builds(
    Grant,
    st.sampled_from(Tier),
    st.frozensets(st.sampled_from(["shell", "file_write", "network"])),
    st.sampled_from([(), ("/w",), ("/w/a", "/x")]),
    confirmed=st.frozensets(st.sampled_from(["bash", "*"])),
    autonomy=st.sampled_from(Autonomy),
    rules=RULES.map(tuple),
)
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"path": st.text("ab/.", max_size=6), "command": st.text("ab ;$(", max_size=8)}
)
STRICTNESS = {ALLOW: 0, ASK: 1, DENY: 2}


def strictness(name: str, arguments: dict[str, Any], grant: Grant) -> int:
    decision = decide(Case(ToolCall(name, arguments, id="c"), TOOLS, grant))
    return {Allowed: 0, NeedsApproval: 1, Denied: 2}[type(decision)]


@given(NAMES, ARGUMENTS, GRANTS, GRANTS)
def test_a_sub_agent_may_never_do_more_than_either_grant(
    name: str, arguments: dict[str, Any], one: Grant, other: Grant
) -> None:
    both = strictness(name, arguments, narrow_grant(one, other))
    assert both >= strictness(name, arguments, one)
    assert both >= strictness(name, arguments, other)


@given(NAMES, ARGUMENTS, GRANTS, RULES)
def test_the_order_of_rules_does_not_matter(
    name: str, arguments: dict[str, Any], grant: Grant, rules: list[Rule]
) -> None:
    tool = TOOLS.get(name)
    assert tool is not None
    forward, back = replace(grant, rules=tuple(rules)), replace(grant, rules=tuple(rules[::-1]))
    assert ruling(tool, arguments, forward).verdict == ruling(tool, arguments, back).verdict


@given(NAMES, ARGUMENTS, GRANTS, st.sampled_from([ASK, DENY]))
def test_one_more_rule_that_asks_or_denies_never_lets_more_through(
    name: str, arguments: dict[str, Any], grant: Grant, verdict: Verdict
) -> None:
    stricter = replace(grant, rules=(*grant.rules, rule(verdict, name)))
    assert strictness(name, arguments, stricter) >= max(strictness(name, arguments, grant), STRICTNESS[verdict])


@pytest.mark.parametrize(
    "text",
    [
        "deny write",
        "deny edit, write where path is *.lock",
        "allow bash where command is git status",
        "ask needs network by 2",
        "ask write by 3 where path is a is b",
    ],
)
def test_a_rule_is_written_as_it_is_read(text: str) -> None:
    assert str(Rule.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "deny", "forbid write", "deny *", "deny needs *", "deny write where path", "deny write where path is "),
        *("deny write where is x", "ask write by two", "ask write by 0", "deny  where path is x", "deny ,"),
    ],
)
def test_a_rule_that_says_nothing_exact_is_refused_with_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"must read like|exactly|number of people"):
        Rule.parse(text)
