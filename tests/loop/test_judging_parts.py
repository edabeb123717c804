"""The first part of a call's journey by itself: cards, rows about decisions, and passwords in addresses."""

import pytest
from msgspec.structs import replace

from toolwire import Grant, MemoryStore, Tier, Toolbox, tool
from toolwire.deliver.secrets import NO_SECRETS
from toolwire.hub.calls import Accepted
from toolwire.hub.judging import (
    as_kept,
    decision_row,
    heed_password,
    judge,
    judge_again,
    refuse_rest,
    withhold_password,
    withhold_passwords,
)
from toolwire.hub.services import Services
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import ENDS_TURN, USUAL, Agreement, Edge, Tool
from toolwire.protocol.turns import NO_MODEL, Limits, Turn

TERMINATE = AfterExecution.TERMINATE
SECRET_URL = "https://ann:tiger77@example.test/x"


@tool(tier=Tier.RUN)
def fetch(url: str = "") -> str:
    """Fetch."""
    return url


@tool
def look() -> str:
    """Look."""
    return "red"


def services(*tools: Tool) -> Services:
    return Services(Toolbox.of(*(tools or (fetch,))), MemoryStore(), clock=lambda: 7.0)


def asked(url: str = "https://example.test", call_id: str = "c") -> ToolCall:
    return ToolCall("fetch", {"url": url}, call_id, raw={"as": "sent"})


TURN = Turn(
    "t", project="garden", agent="ann", epoch=3, grant=Grant(Tier.RUN, confirmed=frozenset({"fetch"}), wary=True)
)


def tainted() -> Turn:
    read = ToolResult("r", "web", Status.SUCCESS, (Text("page"),), untrusted=True, origins=("https://page.test",))
    messages: tuple[Message, ...] = (UserMessage("Read"), ResultsMessage((read,)))
    return replace(TURN, messages=messages, tainted=True)


def test_only_a_call_that_is_alone_and_runs_here_is_opened_as_claimed() -> None:
    far = replace(fetch, target=Edge("shed"))
    [alone] = judge(services(), TURN, [asked()], None)
    pair = judge(services(), TURN, [asked(), asked(call_id="d")], None)
    [elsewhere] = judge(services(far), TURN, [asked()], None)
    rest = refuse_rest(services(), TURN, asked(), 4)
    [unknown] = judge(services(), TURN, [ToolCall("missing", {}, "c")], None)

    assert (alone.card.attempt, alone.card.token) == (1, alone.card.record_id)
    assert [(one.card.attempt, one.card.token) for one in (*pair, elsewhere)] == [(0, "")] * 3
    assert (rest.card.attempt, rest.card.token) == (0, "")
    assert isinstance(rest.decision, Denied)
    assert rest.decision.left_out == 4
    assert unknown.card.result is not None, "a refused call has its result from the start"
    assert unknown.card.attempt == 0
    assert (alone.card.project, alone.card.agent, alone.card.epoch) == ("garden", "ann", 3)


def test_what_is_agreed_about_a_call_is_on_its_card_unless_it_is_refused_or_all_of_its_turn() -> None:
    ends, leaves = (replace(fetch, after_execution=action) for action in (TERMINATE, AfterExecution.DETACH))
    single, poor = replace(TURN, model=NO_MODEL), replace(TURN, grant=Grant())
    for turn, one, agreed, attempt in (
        (TURN, fetch, USUAL, 1),
        (TURN, ends, Agreement(TERMINATE), 1),
        (TURN, leaves, Agreement(AfterExecution.DETACH), 0),
        (TURN, replace(fetch, controls_turn=True), Agreement(controls_turn=True), 1),
        (TURN, replace(ends, target=Edge("shed")), Agreement(TERMINATE), 0),
        (single, ends, USUAL, 1),
        (poor, ends, USUAL, 0),
    ):
        [made] = judge(services(one), turn, [asked()], None)
        assert (made.card.agreed, made.card.attempt) == (agreed, attempt)


def test_a_card_counts_the_reply_that_it_is_of() -> None:
    turn = replace(TURN, iterations=4)
    [new] = judge(services(), turn, [asked()], None)
    [again] = judge(services(), replace(turn, pending=(asked(),)), [asked()], None)
    assert (new.card.step, again.card.step) == (5, 4)


def test_a_call_that_ends_the_turn_is_refused_beside_others() -> None:
    submit = replace(look, name="submit", category=ENDS_TURN)
    last = ToolCall("submit", {}, "s")
    together = judge(services(fetch, submit), TURN, [asked(), last, ToolCall("missing", {}, "m")], None)
    [alone] = judge(services(fetch, submit), TURN, [last], None)

    assert [type(one.decision) for one in (*together, alone)] == [Allowed, Denied, Denied, Allowed]
    denied = together[1].decision
    assert isinstance(denied, Denied)
    assert (denied.code, denied.rule) == (Code.INVALID_PARAMS, "alone")
    assert "'submit' ends the turn" in denied.message


def test_what_was_cleared_counts_for_its_grant_and_its_tools_alone() -> None:
    """Neither what a turn may nor what a tool asks for is taken from an earlier turn."""
    own, walk = services(look), replace(TURN, grant=Grant(Tier.WALK))
    call = ToolCall("look", {}, "c")

    def decided(turn: Turn) -> type:
        [one] = judge(own, turn, [call], None)
        return type(one.decision)

    assert decided(walk) is Allowed
    cleared = own.clearance
    assert (decided(walk), own.clearance is cleared) == (Allowed, True)
    assert decided(replace(walk, grant=Grant(Tier.CRAWL))) is Denied
    assert decided(walk) is Allowed
    own.toolbox = Toolbox.of(replace(look, requires_confirmation=True))
    assert decided(walk) is NeedsApproval
    assert decided(walk) is NeedsApproval


@pytest.mark.parametrize("limit", ["step", "turn"])
def test_calls_beyond_a_limit_are_refused_also_where_each_by_itself_needs_only_a_look(limit: str) -> None:
    walk = replace(TURN, grant=Grant(Tier.WALK), limits=Limits(calls_per_step=1))
    turn = walk if limit == "step" else replace(TURN, grant=Grant(Tier.WALK, max_calls=3), calls=2)
    made = judge(services(look), turn, [ToolCall("look", {}, name) for name in ("a", "b")], None)
    assert [type(one.decision) for one in made] == [Allowed, Denied]


def test_a_call_of_a_turn_that_has_read_something_untrusted_names_it() -> None:
    [clean] = judge(services(), TURN, [asked()], None)
    [one] = judge(services(), tainted(), [asked()], None)
    again = judge_again(services(), tainted(), asked())

    assert isinstance(clean.decision, Allowed)
    assert isinstance(judge_again(services(), TURN, asked()), Allowed)
    for decision in (one.decision, again):
        assert isinstance(decision, NeedsApproval)
        assert "page.test" in decision.reason


def test_the_log_tells_each_decision_apart() -> None:
    [one] = judge(services(), TURN, [asked()], None)
    assert isinstance(one.decision, Allowed)
    request = NeedsApproval(one.decision, "why", "digest")
    denied = Denied(asked(), Code.NOT_FOUND, "gone", "exists")
    rows = [
        decision_row(replace(one, decision=decision))
        for decision in (
            one.decision, replace(request, tries=True), request, denied, replace(denied, left_out=2),
        )
    ]  # fmt: skip

    assert [(row.event, row.rule, dict(row.detail), row.at) for row in rows] == [
        ("allowed", "", {}, 7.0),
        ("allowed", "trial", {}, 7.0),
        ("awaiting_approval", "confirmation", {"reason": "why"}, 7.0),
        ("denied", "exists", {}, 7.0),
        ("denied", "exists", {"left_out": 2}, 7.0),
    ]


def test_a_call_that_the_day_has_no_room_for_is_refused() -> None:
    [one] = judge(services(), TURN, [asked()], None)
    spent = ToolResult.failed(asked(), Code.PERMISSION_DENIED, "The day is over.")
    done = ToolResult("c", "fetch", Status.SUCCESS)
    refused = as_kept(one, replace(one.card, result=spent))

    assert as_kept(one, one.card) is one
    assert as_kept(one, replace(one.card, result=done)) is one, "it has a result and no refusal"
    answered = Accepted(replace(one.card, result=spent), one.decision)
    assert as_kept(answered, replace(one.card, result=spent)) is answered, "it was refused for itself"
    assert isinstance(refused.decision, Denied)
    assert (refused.decision.message, refused.decision.rule, refused.card.result) == (
        "The day is over.",
        "budget",
        spent,
    )


def test_a_password_in_an_address_is_withheld_and_stays_a_secret_of_this_process() -> None:
    own = services()
    plain = asked()
    hidden = withhold_password(own, asked(SECRET_URL))

    assert withhold_password(own, plain) is plain
    assert withhold_password(own, hidden) is hidden, "what stands for a password is not withheld again"
    assert "tiger77" not in str(hidden)
    assert hidden.raw is None
    assert own.secrets is not NO_SECRETS
    assert "tiger77" not in own.clean("tiger77 was said")
    allowed = Allowed(hidden, fetch, hidden.arguments, 1.0)
    assert own.secrets.revealed(allowed).arguments == {"url": SECRET_URL}
    assert own.secrets.limits(allowed) == ()


def test_all_calls_of_a_reply_are_looked_through_once_one_has_a_password() -> None:
    own = services()
    clean = Reply(calls=(asked(), asked(call_id="d")))
    leaky = Reply(calls=(asked(), asked(SECRET_URL, "d"), asked(SECRET_URL.replace("tiger77", "lion88"), "e")))
    kept = withhold_passwords(own, leaky)

    assert withhold_passwords(services(), clean) is clean
    assert [call.id for call in kept.calls] == ["c", "d", "e"]
    assert kept.calls[0] is leaky.calls[0]
    assert "tiger77" not in str(kept)
    assert "lion88" not in str(kept)


@pytest.mark.parametrize(("url", "looks"), [("https://example.test", False), (SECRET_URL, True)])
def test_calls_are_looked_through_only_once_a_password_was_seen(url: str, looks: bool) -> None:
    own = services()
    heed_password(own, asked(url))
    before = own.secrets
    heed_password(own, asked(SECRET_URL))
    after = own.secrets
    heed_password(own, asked(SECRET_URL))

    assert (before is not NO_SECRETS) is looks
    assert after is not NO_SECRETS
    assert own.secrets is after, "what is known by then stays"
