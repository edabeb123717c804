"""The nouns: frozen, light, and one table of outcomes."""

from enum import Enum
from typing import Any

import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from toolwire.protocol import calls, chat, outcomes, records, tools, turns
from toolwire.protocol.calls import Image, Resource, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Usage
from toolwire.protocol.outcomes import OUTCOMES, Code, Status
from toolwire.protocol.policy import TAINTED, Rule, Verdict, inherits_taint

NOUNS = [
    noun
    for module in (calls, chat, outcomes, records, tools, turns)
    for noun in vars(module).values()
    if isinstance(noun, type) and issubclass(noun, Struct) and noun.__module__ == module.__name__
]


@pytest.mark.requirement("protocol.frozen")
@pytest.mark.feature("F021")
@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.__name__)
def test_a_noun_cannot_change_after_it_is_made(noun: Any) -> None:
    one = noun(*map(_some, fields(noun)))
    with pytest.raises(AttributeError, match="immutable"):
        setattr(one, noun.__struct_fields__[0], "changed")
    with pytest.raises(AttributeError):
        one.something_else = "new"


def _some(field: FieldInfo) -> Any:
    """What stands for a field here: its default, or a name, which does for fields that are not checked."""
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return "x" if field.default is NODEFAULT else field.default


@pytest.mark.requirement("protocol.outcomes")
@pytest.mark.feature("F150")
def test_the_five_statuses_are_a_closed_list() -> None:
    assert [status.value for status in Status] == ["success", "failed", "canceled", "timeout", "partial"]


@pytest.mark.requirement("protocol.outcomes")
@pytest.mark.feature("F149", "F151")
@pytest.mark.parametrize(
    ("code", "status", "commonground", "evoclaw"),
    [
        ("not_found", "failed", "bad_request", "not_found"),
        ("invalid_params", "failed", "bad_request", "invalid_params"),
        ("permission_denied", "failed", "auth_failed", "permission_denied"),
        ("timeout", "timeout", "tool_timeout", "timeout"),
        ("canceled", "canceled", "canceled", "canceled"),
        ("unavailable", "failed", "upstream_unavailable", "execution_failed"),
        ("sandbox_unavailable", "failed", "upstream_unavailable", "execution_failed"),
        ("execution_failed", "failed", "internal_error", "execution_failed"),
        ("invalid_output", "failed", "internal_error", "execution_failed"),
        ("outcome_unknown", "failed", "internal_error", "execution_failed"),
        ("internal_error", "failed", "internal_error", "execution_failed"),
    ],
)
def test_every_code_has_one_word_in_every_other_system(code: str, status: str, commonground: str, evoclaw: str) -> None:
    row = OUTCOMES[Code(code)]
    assert (row.status, row.commonground, row.evoclaw, row.rcrt, row.mcp) == (
        status, commonground, evoclaw, "error", "isError",
    )  # fmt: skip


def test_no_code_is_without_a_row() -> None:
    assert set(OUTCOMES) == set(Code)
    assert all(issubclass(enum, Enum) for enum in (Code, Status))


@pytest.mark.feature("F151", "F156")
@pytest.mark.parametrize("code", list(Code))
def test_a_result_that_failed_says_so_in_status_error_and_content(code: Code) -> None:
    """We chose one shape for all tools: look at the status first, then at the error."""
    result = ToolResult.failed(ToolCall("read", {}, id="c1"), code, "It did not work.")

    assert not result.ok
    assert result.status is OUTCOMES[code].status
    assert result.error is not None
    assert (result.error.code, result.error.message, result.error.retryable) == (
        code, "It did not work.", OUTCOMES[code].retryable,
    )  # fmt: skip
    assert result.text == "It did not work."


def test_the_text_of_a_result_has_a_line_for_everything_that_is_not_text() -> None:
    blocks = (Text("a"), Image("AAAA", "image/png"), Resource("file:///x", "notes"))
    assert ToolResult("c", "t", Status.SUCCESS, blocks).text == "a\n[image image/png]\n[notes: file:///x]"


@pytest.mark.feature("F158")
def test_usage_adds_up_and_an_unknown_price_stays_unknown() -> None:
    assert Usage(1, 2, 0) + Usage(3, 4, 1) == Usage(4, 6, 1, None)
    assert Usage(1, 1, 0, 0.5) + Usage(1, 1) == Usage(2, 2, 0, 0.5)


@pytest.mark.feature("F011", "F012")
def test_a_call_may_come_without_an_id_and_keeps_its_original() -> None:
    call = ToolCall("read", {"path": "a"}, raw={"anything": 1})
    assert (call.id, call.alias, call.raw) == ("", None, {"anything": 1})


def test_a_turn_kept_by_an_earlier_version_inherits_its_taint() -> None:
    before = Rule(
        Verdict.ASK, frozenset({"wipe"}), reason="Whoever asks for this has read what strangers may have written"
    )

    assert inherits_taint([before])
    assert inherits_taint([Rule(Verdict.ASK, frozenset({"wipe"}), reason=TAINTED)])
    assert not inherits_taint([Rule(Verdict.ASK, frozenset({"wipe"}), reason="Wiping needs approval")])
