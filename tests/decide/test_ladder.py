"""The ladder: exists, offered, tier, permissions, arguments, confirmation, limits."""

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Effect, Grant, Tier, Toolbox, ToolCall, tool
from toolwire.decide.ladder import RUNGS, Case, Clearance, decide, explain, preflight
from toolwire.define.canonical import sorted_json
from toolwire.protocol.calls import Allowed, CallOptions, Denied, NeedsApproval
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Autonomy, Rule


@tool(tier=Tier.CRAWL, effect=Effect.PURE)
def look(what: str, times: int = 1) -> str:
    """Look at something."""
    return what * times


@tool(tier=Tier.WALK, needs={"file_read"}, effect=Effect.PURE)
def fetch(path: str, timeout_ms: int = 1000) -> str:
    """Fetch a file."""
    return path


@tool(tier=Tier.RUN, needs={"shell"})
def bash(command: str) -> str:
    """Run a command."""
    return command


@tool(tier=Tier.CRAWL, requires_confirmation=True, effect=Effect.PURE)
def ring(bell: str) -> str:
    """Ring a bell."""
    return bell


@tool(tier=Tier.CRAWL, platforms={"raspberrypi"}, effect=Effect.PURE)
def gpio(pin: int) -> int:
    """Read a pin."""
    return pin


TOOLS = Toolbox(look, fetch, bash, ring, gpio)
EVERYTHING = Grant(tier=Tier.RUN, permissions=frozenset({"file_read", "shell"}), platform="linux")


def case(name: str, grant: Grant = EVERYTHING, **more: Any) -> Case:
    arguments = more.pop("arguments", {})
    return Case(ToolCall(name, arguments, id="c1"), TOOLS, grant, **more)


@pytest.mark.requirement("decide.ladder")
@pytest.mark.feature("F105", "F107", "F113")
@pytest.mark.parametrize(
    ("given", "rule", "code"),
    [
        (case("nothing"), "exists", Code.NOT_FOUND),
        (case("look", arguments={"what": "x"}, offered=frozenset({"ring"})), "offered", Code.PERMISSION_DENIED),
        (case("gpio", arguments={"pin": 1}), "offered", Code.UNAVAILABLE),
        (case("bash", Grant(tier=Tier.WALK), arguments={}), "tier", Code.PERMISSION_DENIED),
        (case("bash", Grant(tier=Tier.RUN), arguments={}), "permissions", Code.PERMISSION_DENIED),
        (case("look", arguments={"wat": "x"}), "arguments", Code.INVALID_PARAMS),
        (case("bash", arguments={"command": "ls"}, spent=64), "limits", Code.PERMISSION_DENIED),
        (case("look", arguments={"what": "x"}, place=32), "limits", Code.PERMISSION_DENIED),
    ],
)
def test_the_lowest_rung_that_fails_decides(given: Case, rule: str, code: Code) -> None:
    decision = decide(given)
    assert isinstance(decision, Denied)
    assert (decision.rule, decision.code) == (rule, code)


@pytest.mark.feature("F108")
def test_a_call_that_climbs_to_the_top_is_allowed_with_coerced_arguments() -> None:
    decision = decide(case("look", arguments={"what": "x", "times": "3"}))
    assert isinstance(decision, Allowed)
    assert decision.arguments == {"what": "x", "times": 3}
    assert decision.notes


@pytest.mark.feature("F114")
def test_a_refusal_by_tier_names_the_tier_the_turn_has() -> None:
    decision = decide(case("bash", Grant(tier=Tier.WALK), arguments={"command": "ls"}))
    assert isinstance(decision, Denied)
    assert "needs tier RUN; this turn has tier WALK" in decision.message


@pytest.mark.threat("T9")
@pytest.mark.feature("F106", "F155")
def test_an_unknown_name_is_answered_with_the_nearest_names_that_are_allowed() -> None:
    """A locked tool's name is never given away."""
    near = decide(case("fetsh"))
    locked = decide(case("bsh", Grant(tier=Tier.CRAWL)))
    assert isinstance(near, Denied)
    assert isinstance(locked, Denied)
    assert "'fetch'" in near.message
    assert "bash" not in locked.message


def test_an_unknown_name_like_nothing_is_answered_with_what_there_is() -> None:
    decision = decide(case("qqqqqqqqqq", Grant(tier=Tier.CRAWL)))
    assert isinstance(decision, Denied)
    assert "Available: look, ring" in decision.message


@pytest.mark.feature("F064")
def test_approval_is_needed_where_the_tool_says_so_and_for_run_tools_that_change_things() -> None:
    for name, arguments in (("ring", {"bell": "a"}), ("bash", {"command": "ls"})):
        decision = decide(case(name, arguments=arguments))
        assert isinstance(decision, NeedsApproval)
        assert decision.allowed.arguments == arguments


@pytest.mark.parametrize("confirmed", [frozenset({"bash"}), frozenset({"*"})])
def test_a_grant_that_confirmed_a_tool_settles_the_question(confirmed: frozenset[str]) -> None:
    decision = decide(case("bash", replace(EVERYTHING, confirmed=confirmed), arguments={"command": "ls"}))
    assert isinstance(decision, Allowed)


@pytest.mark.requirement("decide.no-ask-for-refused")
def test_no_approval_is_requested_for_a_call_that_would_be_refused_anyway() -> None:
    assert isinstance(decide(case("bash", arguments={})), Denied)
    assert isinstance(decide(case("bash", arguments={"command": "ls"}, place=99)), Denied)


@pytest.mark.threat("T65")
def test_an_approval_is_bound_to_the_exact_arguments() -> None:
    one, same, other = (decide(case("ring", arguments={"bell": bell})) for bell in ("a", "a", "b"))
    assert isinstance(one, NeedsApproval)
    assert isinstance(same, NeedsApproval)
    assert isinstance(other, NeedsApproval)
    assert one.digest == same.digest != other.digest


@pytest.mark.threat("T11")
@pytest.mark.requirement("execute.timeout")
@pytest.mark.feature("F137", "F136")
@pytest.mark.parametrize(("asked", "given"), [(2_000, 2.0), (10_000_000, 300.0), (0, 30.0), (-5, 30.0)])
def test_the_time_a_model_asks_for_is_clamped_to_the_tools_maximum(asked: int, given: float) -> None:
    decision = decide(case("fetch", arguments={"path": "a", "timeout_ms": asked}))
    assert isinstance(decision, Allowed)
    assert decision.timeout_s == given
    assert decision.arguments["timeout_ms"] == int(given * 1000)


@pytest.mark.parametrize("asks", [False, True])
def test_no_call_gets_more_time_than_its_tool_may_have(asks: bool) -> None:
    """Whether its tool sets the time or the call itself beside its arguments, and whether anybody is asked first."""

    def given(timeout_s: float, wanted: CallOptions | None) -> float:
        one = replace(look, timeout_s=timeout_s, max_timeout_s=20.0, requires_confirmation=asks)
        decision = decide(Case(ToolCall("look", {"what": "x"}, id="c", options=wanted), Toolbox(one), EVERYTHING))
        if asks:
            assert isinstance(decision, NeedsApproval)
            decision = decision.allowed
        assert isinstance(decision, Allowed)
        return decision.timeout_s

    assert [given(timeout_s, None) for timeout_s in (5.0, 20.0, 50.0)] == [5.0, 20.0, 20.0]
    assert [given(5.0, CallOptions(timeout_s=wanted)) for wanted in (None, 2.0, 50.0)] == [5.0, 2.0, 20.0]


@pytest.mark.feature("F127")
def test_a_preflight_lists_everything_that_stands_in_the_way() -> None:
    issues = preflight(case("bash", Grant(tier=Tier.CRAWL), arguments={"cmd": 1}, spent=64))
    assert [issue.rule if isinstance(issue, Denied) else "confirmation" for issue in issues] == [
        "tier", "permissions", "arguments", "confirmation", "limits",
    ]  # fmt: skip
    assert preflight(case("look", arguments={"what": "x"})) == []
    assert len(preflight(case("nothing"))) == 1


def test_an_explanation_tells_every_rung() -> None:
    climb = explain(case("bash", Grant(tier=Tier.WALK), arguments={"command": "ls"}))
    assert [rung.rule for rung in climb] == list(RUNGS)
    assert [rung.verdict for rung in climb] == [
        *("passed", "passed", "denied", "denied", "passed", "passed", "asks", "passed")
    ]
    assert [rung.verdict for rung in explain(case("nothing"))] == ["denied"] + ["unreached"] * 7


def test_arguments_that_could_not_be_read_are_told_and_not_judged_as_empty() -> None:
    broken = Case(ToolCall("look", {}, id="c", fault="the JSON ends in the middle of a string"), TOOLS, EVERYTHING)
    decision = decide(broken)
    assert isinstance(decision, Denied)
    assert "ends in the middle" in decision.message


@pytest.mark.threat("T10")
@pytest.mark.contrast("T10")
@pytest.mark.feature("F115")
@pytest.mark.parametrize("spelling", ["native", "hermes", "json", "pythonic", "direct", "local"])
@pytest.mark.parametrize("tier", list(Tier))
def test_no_format_gets_a_call_past_its_tier(spelling: str, tier: Tier) -> None:
    call = ToolCall("bash", {"command": "ls"}, id="c", format=spelling, confidence=1.0)
    grant = Grant(tier=tier, permissions=frozenset({"shell"}), confirmed=frozenset({"*"}))
    assert isinstance(decide(Case(call, TOOLS, grant)), Allowed if tier is Tier.RUN else Denied)


def test_what_is_cleared_at_a_look_is_what_the_ladder_allows() -> None:
    """A tool is looked at once for all its calls, so every kind of tool, grant and call is compared with the climb."""

    @tool(tier=Tier.WALK, timeout_s=50, max_timeout_s=20)
    def change(what: str, times: int = 1, timeout_ms: int = 0) -> str:
        """Change something."""
        return what * times

    @tool(tier=Tier.CRAWL, effect=Effect.PURE, validator=lambda given: {**given, "what": "y"})
    def checked(what: str) -> str:
        """Look at something else."""
        return what

    @tool(tier=Tier.RUN)
    def run(what: str) -> str:
        """Run something."""
        return what

    tools = Toolbox(*TOOLS, change, checked, run)
    grants = [
        EVERYTHING,
        Grant(),
        replace(EVERYTHING, max_calls=2),
        replace(EVERYTHING, autonomy=Autonomy.READONLY),
        replace(EVERYTHING, autonomy=Autonomy.FULL),
        replace(EVERYTHING, rules=(Rule.parse("deny look"),)),
        replace(EVERYTHING, tier=Tier.CRAWL, platform="raspberrypi"),
    ]
    given: list[dict[str, Any]] = [
        {"what": "x"}, {"what": "x", "times": 2}, {"what": "x", "times": 2.0}, {"what": "x", "times": "2"}, {"pin": 1},
        {"what": 1}, {"what": "x", "timeout_ms": 5}, {"path": "a"}, {"command": "ls"}, {"bell": "b"}, {},
        {"what": "\ud800"},
    ]  # fmt: skip
    options: list[dict[str, Any]] = [{}, {"fault": "cut off"}, {"options": CallOptions(timeout_s=1.0)}]
    offers, counts = (None, frozenset({"look", "run"})), (0, 1, 2)
    cleared = 0
    for grant in grants:
        clearance = Clearance(tools, grant)
        for name, arguments, more, offered, spent in product((*tools.names, "none"), given, options, offers, counts):
            call = ToolCall(name, arguments, id="c1", **more)
            allowed = clearance.allow(call, offered, spent, sorted_json(arguments))
            if allowed is not None:
                climbed = decide(Case(call, tools, grant, offered, spent))
                assert isinstance(climbed, Allowed)
                assert (allowed, str(allowed.arguments)) == (climbed, str(climbed.arguments))
                cleared += 1
    assert cleared > 50
