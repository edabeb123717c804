"""The published JSON Schemas say what the code does."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.utp.pages import PAGE, written
from tests.utp.samples import (
    CALL_CARD,
    CALLBACK,
    COMMAND,
    PMO_COMMAND,
    RESULT_CARD,
    WAKEUP,
    a_while,
    callbacks,
    commands,
    json_values,
)  # fmt: skip
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.wire.utp.cards import (
    ToolCallCard,
    ToolResultCard,
    decode_call_card,
    decode_result_card,
    encode_call_card,
    encode_result_card,
)  # fmt: skip
from toolwire.wire.utp.fields import CALLBACK_FIELDS, COMMAND_FIELDS, TRACE, WAKEUP_FIELDS
from toolwire.wire.utp.messages import (
    ToolCallback,
    ToolCommand,
    decode_callback,
    decode_command,
    decode_wakeup,
    encode_callback,
    encode_command,
    encode_wakeup,
)  # fmt: skip
from toolwire.wire.utp.outcome import CardError
from toolwire.wire.utp.schemas import schemas
from toolwire.wire.utp.violations import Refusal

VALIDATORS = {name: jsonschema_rs.Draft202012Validator(schema) for name, schema in schemas().items()}
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "tool-command": (COMMAND, COMMAND_FIELDS, decode_command),
    "pmo-command": (PMO_COMMAND, COMMAND_FIELDS, decode_command),
    "tool-callback": (CALLBACK, CALLBACK_FIELDS, decode_callback),
    "wakeup": (WAKEUP, WAKEUP_FIELDS, decode_wakeup),
}
TRACED = {one.name for one in TRACE}
ENCODERS: dict[str, Any] = {
    "tool-command": encode_command, "pmo-command": encode_command, "tool-callback": encode_callback,
    "wakeup": encode_wakeup,
}  # fmt: skip


def body(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ENCODERS[name](KINDS[name][0]).data)
    return found


@pytest.mark.parametrize("path", written(), ids=lambda path: path.name)
def test_the_published_files_are_what_the_code_makes(path: Path) -> None:
    """Run `make docs` when this fails."""
    assert path.read_text(encoding="utf-8") == written()[path]()


def test_no_schema_is_left_over() -> None:
    assert {path.name for path in (PAGE.parent / "protocol").iterdir()} == {path.name for path in written()} - {
        PAGE.name
    }


@a_while
@given(commands)
def test_every_command_that_is_written_fits_its_schemas(command: ToolCommand) -> None:
    message = encode_command(command)
    assert isinstance(message, BusMessage)
    VALIDATORS["tool-command"].validate(json.loads(message.data))
    VALIDATORS["command-headers"].validate(dict(message.headers))


@a_while
@given(callbacks)
def test_every_callback_that_is_written_fits_its_schemas(callback: ToolCallback) -> None:
    message = encode_callback(callback)
    assert isinstance(message, BusMessage)
    VALIDATORS["tool-callback"].validate(json.loads(message.data))
    VALIDATORS["callback-headers"].validate(dict(message.headers))


odd: st.SearchStrategy[Any] = st.sampled_from(
    ["", "a b", "suspend", "terminate", "detach", "success", "a" * 200, "a" * 201, "\x7f", "a\n", -1, 3, 3.0, 3.5,
     2**53, 2**53 - 1, True, None, [], {}, "web_search", "f" * 64, "f" * 63]
)  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
@a_while
@given(data=st.data())
def test_a_payload_fits_its_schema_exactly_when_it_is_read(name: str, data: st.DataObject) -> None:
    """Fields that only serve traces are left out: a wrong one is ignored on reading, and not to be written."""
    value, fields, decode = KINDS[name]
    known = [one.name for one in fields if one.name not in TRACED]
    strange = st.sampled_from(["args", "Result", "ARGUMENTS", "x", "argsx", "results"])
    changes = data.draw(st.dictionaries(st.sampled_from(known) | strange, odd | json_values, max_size=4))
    gone = data.draw(st.sets(st.sampled_from(known), max_size=2))
    payload = {field: item for field, item in {**body(name), **changes}.items() if field not in gone}
    if name == "pmo-command" and "tool_name" in payload:
        payload["tool_name"] = "delegate_async"  # the subject says the same, which a schema cannot know
    read = decode(BusMessage(str(value.subject), orjson.dumps(payload)))
    assert VALIDATORS[name].is_valid(payload) == (not isinstance(read, Refusal)), (payload, read)


@pytest.mark.parametrize("name", KINDS)
def test_inline_content_fits_no_schema(name: str) -> None:
    assert VALIDATORS[name].is_valid({**body(name), "unknown": {"x": 1}})
    for banned in ("args", "arguments", "result", "Args"):
        assert not VALIDATORS[name].is_valid({**body(name), banned: {}})


@pytest.mark.parametrize(
    "card",
    [CALL_CARD, RESULT_CARD,
     ToolResultCard("c", "p", "t", "k", Status.TIMEOUT, None, CardError("tool_timeout", "M", 1, True, Code.TIMEOUT)),
     ToolResultCard("c", "p", "t", "k", Status.PARTIAL, "half"),
     ToolResultCard("c", "p", "t", "k", Status.SUCCESS, [1])],
)  # fmt: skip
def test_every_card_that_is_written_fits_its_schema(card: ToolCallCard | ToolResultCard) -> None:
    if isinstance(card, ToolCallCard):
        name, data = "tool-call-card", encode_call_card(card)
    else:
        name, data = "tool-result-card", encode_result_card(card)
    assert isinstance(data, bytes)
    VALIDATORS[name].validate(json.loads(data))


@pytest.mark.parametrize(
    ("part", "change"),
    [("", {"card_id": ""}), ("", {"type": "tool.result"}), ("", {"content": []}), ("content", {"arguments": []}),
     ("content", {"tool_name": "a b"}), ("metadata", {"tool_call_id": 7}), ("metadata", {"agent_turn_id": None}),
     ("metadata", {"turn_epoch": -1}), ("content", {"after_execution": "x"})],
)  # fmt: skip
def test_a_call_card_that_is_refused_does_not_fit_its_schema(part: str, change: dict[str, Any]) -> None:
    data = encode_call_card(CALL_CARD)
    assert isinstance(data, bytes)
    whole = json.loads(data)
    (whole[part] if part else whole).update(change)
    assert isinstance(decode_call_card(orjson.dumps(whole)), Refusal)
    assert not VALIDATORS["tool-call-card"].is_valid(whole)


@pytest.mark.parametrize(
    "content",
    [{}, {"status": "done"}, {"status": "failed"}, {"status": "failed", "error": {"code": "x"}},
     {"status": "success", "error": {"code": "x", "message": "M"}}, {"status": "success", "after_execution": "x"}],
)  # fmt: skip
def test_a_result_that_is_only_read_as_a_failure_does_not_fit_its_schema(content: dict[str, Any]) -> None:
    data = encode_result_card(RESULT_CARD)
    assert isinstance(data, bytes)
    whole = {**json.loads(data), "content": content}
    assert not VALIDATORS["tool-result-card"].is_valid(whole)
    read = decode_result_card(orjson.dumps(whole))
    assert isinstance(read, ToolResultCard)
    assert read.status is Status.FAILED


def test_the_examples_of_the_page_fit_their_schemas_and_belong_together() -> None:
    blocks = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = ["tool-command", "tool-call-card", "tool-result-card", "tool-callback"]
    assert len(blocks) == len(names)
    for name, block in zip(names, blocks, strict=True):
        VALIDATORS[name].validate(json.loads(block))
    subject = "cg.v1r4.acme.public.cmd.tool.search"
    assert isinstance(decode_command(BusMessage(subject, blocks[0].encode())), ToolCommand)
    assert isinstance(decode_call_card(blocks[1].encode()), ToolCallCard)
    assert isinstance(decode_result_card(blocks[2].encode()), ToolResultCard)
    report = "cg.v1r4.acme.public.cmd.sys.execution.report"
    assert isinstance(decode_callback(BusMessage(report, blocks[3].encode())), ToolCallback)
