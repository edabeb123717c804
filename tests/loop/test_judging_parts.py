"""The first part of a call's journey by itself: cards, rows about decisions, and passwords in addresses."""

import pytest

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
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Edge, Tool
from toolwire.protocol.turns import Turn
from toolwire.protocol.values import replace

SECRET_URL = "https://ann:tiger77@example.test/x"


@tool(tier=Tier.RUN)
def fetch(url: str = "") -> str:
    """Fetch."""
    return url


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
