"""What the ladder says, and what an approval is bound to: the sentences that models and approvers read."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.decide.test_ladder import EVERYTHING, bash, case
from toolwire import Effect, Grant, Tier, Toolbox, ToolCall, tool
from toolwire.decide.ladder import Case, decide, explain, too_many, works_in_folders
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, Source
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Autonomy, Rule


def refusal(given: Case) -> str:
    decision = decide(given)
    assert isinstance(decision, Denied)
    return decision.message


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (case("gpio", arguments={"pin": 1}), "'gpio' runs on raspberrypi, not on linux."),
        (
            case("look", arguments={"what": "x"}, place=32),
            "Only the first 32 calls of one reply are run. Send the rest in the next reply.",
        ),
        (
            case("look", arguments={"what": "x"}, place=2, calls_per_step=2),
            "Only the first 2 calls of one reply are run. Send the rest in the next reply.",
        ),
        (
            case("look", arguments={"what": "x"}, spent=64),
            "This turn has used its 64 calls. Answer with what you have.",
        ),
        (
            case("look", arguments={"what": "x"}, spent=60, place=4),
            "This turn has used its 64 calls. Answer with what you have.",
        ),
        (
            case("gone", offered=frozenset({"gone"})),
            "'gone' is temporarily unavailable. Go on without it, or try again later.",
        ),
        (
            case("zzz", offered=frozenset({"look"})),
            "There is no tool named 'zzz'. Available: look. Choose one of these, or answer without a tool.",
        ),
        (
            case("bash", replace(EVERYTHING, permissions=frozenset()), arguments={"command": "ls"}),
            "Permission denied for 'bash': it needs shell, which this turn does not have. "
            "Explain this to the user, or use another tool.",
        ),
    ],
)
def test_a_refusal_says_what_stands_in_the_way(given: Case, sentence: str) -> None:
    assert refusal(given) == sentence


@pytest.mark.parametrize(("spent", "place", "calls_per_step"), [(63, 0, 32), (60, 3, 32), (0, 1, 2)])
def test_the_last_call_within_the_limits_is_allowed(spent: int, place: int, calls_per_step: int) -> None:
    given = case("look", arguments={"what": "x"}, spent=spent, place=place, calls_per_step=calls_per_step)
    assert isinstance(decide(given), Allowed)


def test_a_tool_for_any_platform_runs_on_any() -> None:
    assert isinstance(decide(case("look", replace(EVERYTHING, platform="amiga"), arguments={"what": "x"})), Allowed)


def test_where_there_is_nothing_to_call_the_model_is_told_to_answer() -> None:
    nothing = Case(ToolCall("look", {}, id="c1"), Toolbox(), EVERYTHING)
    assert refusal(nothing).endswith("No tools are available; answer without them.")


@pytest.mark.parametrize(("count", "more"), [(10, "t09. Choose"), (11, "t09, …. Choose")])
def test_of_many_tools_ten_are_named(count: int, more: str) -> None:
    def named(number: int) -> Any:
        return tool(lambda: "", name=f"t{number:02}", description="Look.", effect=Effect.PURE, tier=Tier.CRAWL)

    many = Toolbox(*(named(number) for number in range(count)))
    assert more in refusal(Case(ToolCall("zzzzzzzzzz", {}, id="c1"), many, EVERYTHING))


def test_a_long_name_that_does_not_exist_is_cut() -> None:
    assert f"named {'z' * 128!r}. " in refusal(case("z" * 1000))


def test_all_calls_beyond_a_step_are_answered_at_once() -> None:
    call = ToolCall("look", {}, id="c1")
    denied = too_many(call, 32, 1_968)
    assert denied == Denied(
        call,
        Code.PERMISSION_DENIED,
        "Only the first 32 calls of one reply are run. This one and 1,968 more were left out; "
        "send what is still needed in the next reply.",
        "limits",
        1_968,
    )


def test_a_call_that_asks_for_no_time_gets_the_tools_own_and_no_argument() -> None:
    decision = decide(case("fetch", arguments={"path": "a"}))
    assert isinstance(decision, Allowed)
    assert "timeout_ms" not in decision.arguments


@pytest.mark.parametrize(
    ("grant", "quorum", "refusal", "explained"),
    [
        (EVERYTHING, 1, "", "Otherwise: 'bash' changes things, so a person is asked before it runs."),
        (
            replace(EVERYTHING, autonomy=Autonomy.READONLY), 1,
            "'bash' wanted to change things, and this turn may only look. Tell the user that it is not allowed.",
            "Otherwise: 'bash' wanted to change things, and this turn may only look. Tell the user",
        ),
        (replace(EVERYTHING, rules=(Rule.parse("ask bash by 2"),)), 2, "", "The policy says so (ask bash by 2)."),
    ],
)  # fmt: skip
def test_an_approval_says_how_many_have_to_agree_and_what_is_refused_without_it(
    grant: Grant, quorum: int, refusal: str, explained: str
) -> None:
    tries = Toolbox(replace(bash, trial_box=True))
    given = Case(ToolCall("bash", {"command": "make"}, id="c1"), tries, grant)
    decision = decide(given)
    assert isinstance(decision, NeedsApproval)
    assert (decision.quorum, decision.refusal) == (quorum, refusal)
    [sentence] = [rung.sentence for rung in explain(given) if rung.rule == "confirmation"]
    assert explained in sentence


def test_one_millisecond_is_a_time() -> None:
    decision = decide(case("fetch", arguments={"path": "a", "timeout_ms": 1}))
    assert isinstance(decision, Allowed)
    assert decision.timeout_s == 0.001


@pytest.mark.parametrize(("given", "sentence"), [({"what": 1, "times": "x"}, "."), ({}, ".")])
def test_faults_of_arguments_are_sentences(given: dict[str, Any], sentence: str) -> None:
    told = refusal(case("look", arguments=given))
    assert told.startswith("Invalid arguments for 'look': ")
    assert told.endswith(sentence)
    assert ".." not in told


def test_an_explanation_says_why_each_rung_was_passed() -> None:
    climb = {rung.rule: rung.sentence for rung in explain(case("look", arguments={"what": "x"}, spent=3, place=1))}
    assert climb["exists"] == "'look' is in the toolbox (version 1)."
    assert climb["offered"] == "Nothing narrows the offer."
    assert climb["tier"] == "It needs tier CRAWL; the grant has RUN."
    assert climb["permissions"] == "It needs no permission."
    assert climb["arguments"] == "They pass the tool's schema."
    assert (climb["policy"], climb["confirmation"]) == ("No rule forbids it.", "It may run without asking.")
    assert climb["limits"] == "60 of 64 calls are left in this turn."
    offered = explain(case("fetch", arguments={"path": "x"}, offered=frozenset({"fetch"})))
    assert offered[1].sentence == "'fetch' is offered in this turn."
    assert offered[3].sentence == "It needs file_read."


def asked(**more: Any) -> NeedsApproval:
    name, arguments = more.pop("name", "ring"), more.pop("arguments", {"bell": "a"})
    grant = replace(EVERYTHING, **more.pop("grant", {}))
    decision = decide(case(name, grant, arguments=arguments, **more))
    assert isinstance(decision, NeedsApproval)
    return decision


def test_an_approval_holds_for_the_folders_the_policy_and_the_network_it_was_given_for() -> None:
    plain = asked()
    elsewhere, strict = asked(grant={"roots": ("/other",)}), asked(grant={"autonomy": Autonomy.FULL})
    assert plain.digest != elsewhere.digest
    assert plain.policy != elsewhere.policy
    assert plain.digest != strict.digest
    ruled = asked(grant={"rules": (Rule.parse("deny read where path is x"),)})
    assert (ruled.digest == plain.digest, ruled.policy == plain.policy) == (False, False)
    reaching = {"permissions": frozenset({"network"})}
    online, further = asked(grant=reaching), asked(grant=reaching | {"network": ("a.example",)})
    assert online.policy != further.policy
    assert plain.policy == asked(grant={"network": ("a.example",)}).policy


def test_a_call_without_arguments_that_works_in_no_folder_is_the_same_in_any() -> None:
    @tool(effect=Effect.PURE, tier=Tier.CRAWL, requires_confirmation=True)
    def honk() -> str:
        """Honk."""
        return "honk"

    @tool(effect=Effect.PURE, tier=Tier.CRAWL, needs={"shell"}, requires_confirmation=True)
    def ls() -> str:
        """List."""
        return ""

    assert [works_in_folders(honk, {}), works_in_folders(honk, {"a": 1}), works_in_folders(ls, {})] == [
        False,
        True,
        True,
    ]
    digests = []
    for one in (honk, ls):
        for root in ("/a", "/b"):
            decision = decide(Case(ToolCall(one.name, {}, id="c1"), Toolbox(one), replace(EVERYTHING, roots=(root,))))
            assert isinstance(decision, NeedsApproval)
            digests.append(decision.digest)
    assert [digests[0] == digests[1], digests[2] == digests[3]] == [True, False]


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (0, ""),
        (1, "It has read tool:t0."),
        (3, "It has read tool:t2, tool:t1, tool:t0."),
        (5, "It has read tool:t4, tool:t3, tool:t2, and 2 more."),
    ],
)
def test_who_is_asked_is_told_what_an_untrusted_turn_has_read(read: int, told: str) -> None:
    sources = tuple(Source("tool", f"t{number}", untrusted=True) for number in range(read))
    shown = [str(source) for source in sources]
    for number, source in enumerate(shown):
        told = told.replace(f"tool:t{number}", source)
    reason = asked(name="bash", arguments={"command": "make"}, tainted=True, read=sources).reason
    assert reason.endswith(told)
    assert reason == reason.rstrip()
    calm = asked(name="bash", arguments={"command": "make"}, read=sources).reason
    assert "It has read" not in calm
