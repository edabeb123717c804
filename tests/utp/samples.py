"""Messages and cards to test with, and strategies that make any."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.outcomes import OUTCOMES, Code, Status
from toolwire.protocol.subjects import Subject
from toolwire.wire.utp.cards import ToolCallCard, ToolResultCard
from toolwire.wire.utp.messages import CallOrigin, ToolCallback, ToolCommand, Wakeup
from toolwire.wire.utp.outcome import CardError

a_while = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

COMMAND = ToolCommand(
    subject=Subject.tool("acme", "public", "search", "web"),
    agent_id="researcher",
    agent_turn_id="turn_1",
    turn_epoch=3,
    tool_call_id="call_1",
    after_execution=AfterExecution.SUSPEND,
    tool_call_card_id="card_1",
    step_id="step_2",
    tool_name="web_search",
)
PMO_COMMAND = ToolCommand(
    subject=Subject.pmo("acme", "public", "delegate_async"),
    agent_id="researcher",
    agent_turn_id="turn_1",
    turn_epoch=3,
    tool_call_id="call_2",
    after_execution=AfterExecution.SUSPEND,
    tool_call_card_id="card_2",
    step_id="step_2",
    tool_name="delegate_async",
)
CALLBACK = ToolCallback(
    subject=Subject.report("acme", "public"),
    agent_id="researcher",
    agent_turn_id="turn_1",
    turn_epoch=3,
    tool_call_id="call_1",
    after_execution=AfterExecution.SUSPEND,
    tool_result_card_id="card_9",
    status=Status.SUCCESS,
    step_id="step_2",
)
WAKEUP = Wakeup(Subject.wakeup("acme", "public", "workers"), "researcher", inbox_id="inbox_1", reason="a result is in")
CALL_CARD = ToolCallCard(
    "card_1", "acme", "turn_1", "call_1", "web_search", {"query": "tents"}, step_id="step_2", turn_epoch=3,
    arguments_digest="0" * 64, after_execution=AfterExecution.SUSPEND, author_id="researcher",
)  # fmt: skip
RESULT_CARD = ToolResultCard(
    "card_9", "acme", "turn_1", "call_1", Status.SUCCESS, {"hits": 3}, function_name="web_search", step_id="step_2"
)

LETTERS = "abcXYZ019_-"
ids = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)
tokens = st.text(LETTERS, min_size=1, max_size=8)
counts = st.integers(0, 2**53 - 1)
names = st.builds("a{}".format, st.text(LETTERS + ".", max_size=8))
afters = st.sampled_from(AfterExecution)
maybe_ids = st.one_of(st.just(""), ids)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
extras = st.dictionaries(st.builds("x_{}".format, st.text("abc", max_size=3)), json_values, max_size=2)
extra_headers = st.dictionaries(st.builds("X-{}".format, st.text("abc", max_size=3)), ids, max_size=2)
identity = {
    "agent_id": ids,
    "agent_turn_id": ids,
    "turn_epoch": counts,
    "tool_call_id": ids,
    "after_execution": afters,
    "step_id": maybe_ids,
    "origin": st.builds(
        CallOrigin, maybe_ids, maybe_ids, maybe_ids, counts, st.sampled_from(["", f"00-{'a' * 32}-{'b' * 16}-01"])
    ),
    "extra": extras,
    "extra_headers": extra_headers,
}
commands = st.builds(
    ToolCommand,
    subject=st.builds(lambda project, channel, path: Subject.tool(project, channel, *path), tokens, tokens,
                      st.lists(tokens, min_size=1, max_size=4)),
    tool_call_card_id=ids,
    tool_name=st.one_of(st.just(""), names),
    context_box_id=maybe_ids,
    arguments_digest=st.sampled_from(["", "f" * 64]),
    **identity,
)  # fmt: skip
callbacks = st.builds(
    ToolCallback,
    subject=st.builds(Subject.report, tokens, tokens),
    tool_result_card_id=ids,
    status=st.sampled_from(Status),
    **identity,
)
errors = st.builds(
    lambda kind, message, detail, retryable: CardError(
        OUTCOMES[kind].commonground, message or "no", detail, retryable, kind
    ),
    st.sampled_from(Code), st.text(st.characters(exclude_categories=["Cs"]), max_size=40), json_values, st.booleans(),
)  # fmt: skip
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)
