"""Messages on MQTT topics: written, signed, read, and refused as values."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.define.canonical import canonical
from toolwire.edge.keys import PrivateKey, PublicKey, PublicKeys
from toolwire.protocol.calls import Image, Text, ToolCall, ToolResult
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Edge, Tool
from toolwire.wire.codecs.travelling import write_tool
from toolwire.wire.mqtt.chunks import ChunkJoiner, is_chunk, read_chunk, split_message
from toolwire.wire.mqtt.commands import (
    CommandKind,
    EdgeCommand,
    ToolRequest,
    decode_command,
    encode_command,
    read_tool_request,
    tool_payload,
)
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.mqtt.reports import (
    AgentCapabilities,
    AgentMessage,
    AgentState,
    AgentStatus,
    EdgeProgress,
    EdgeReport,
    ProgressKind,
    channel_of,
    decode_agent_message,
    encode_agent_message,
    offered_tools,
    refusal_body,
    report_to,
)
from toolwire.wire.mqtt.results import read_tool_result, write_tool_result
from toolwire.wire.mqtt.topics import AgentChannel, Topics

TOPICS = Topics("farm")
KEY, OTHER_KEY = PrivateKey.generate(), PrivateKey.generate()
TRUSTED = PublicKeys([KEY.public])
COMMANDS = TOPICS.of("pi", AgentChannel.COMMANDS)
CALL = ToolCall("bash", {"command": "uptime"}, id="c1")
COMMAND = EdgeCommand(
    CommandKind.TOOL, "r-1", "pi", tool_payload(ToolRequest("bash", {"command": "uptime", "n": 2**60}, 30.0)),
    record_id="rec-1", project="home", epoch=3, attempt=2, sent_at=100.25, deadline=130.5, session="s1", digest="d",
)  # fmt: skip


def decoded(data: bytes, topic: str = COMMANDS, **more: Any) -> EdgeCommand | RefusedMessage:
    return decode_command(topic, data, TOPICS, TRUSTED, canonical, **more)


def refused(data: bytes, topic: str = COMMANDS, **more: Any) -> RefusalCode:
    found = decoded(data, topic, **more)
    assert isinstance(found, RefusedMessage)
    return found.code


@pytest.mark.feature("F201")
def test_commands_and_reports_have_the_topics_of_the_published_format() -> None:
    topics = Topics()
    assert topics.of("living-room-pi", AgentChannel.COMMANDS) == "evoclaw/agents/living-room-pi/commands"
    assert topics.of("living-room-pi", AgentChannel.REPORTS) == "evoclaw/agents/living-room-pi/reports"
    assert topics.of_all(AgentChannel.STATUS) == "evoclaw/agents/+/status"
    for wrong in ("evoclaw/agents/a/b/reports", "evoclaw/agents//reports", "evoclaw/agents/a/orders", "x", "agents/a"):
        assert isinstance(topics.parse(wrong), RefusedMessage)


@pytest.mark.threat("T51")
@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a.b", "a b", "x" * 65, "ä"])
def test_an_id_that_is_not_one_level_of_a_topic_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="agent id"):
        TOPICS.of(name, AgentChannel.REPORTS)


@pytest.mark.feature("F010")
def test_a_signed_command_is_read_as_it_was_written() -> None:
    """The request id names the message, the record id the call, however often its command is sent."""
    data = encode_command(COMMAND, TOPICS, KEY, canonical)
    read = decoded(data)
    assert isinstance(read, EdgeCommand)
    assert read.key_id == KEY.key_id
    assert (read.request_id, read.record_id, read.journal_key) == ("r-1", "rec-1", "rec-1")
    assert read == replace(COMMAND, key_id=KEY.key_id)
    assert read_tool_request(read.payload) == ToolRequest("bash", {"command": "uptime", "n": 2**60}, 30.0)


def test_a_plain_message_of_the_published_format_is_read_only_where_that_is_allowed() -> None:
    plain = b"""{"command": "tool", "payload": {"tool": "bash", "parameters": {"command": "ls -la"},
        "timeout_ms": 30000, "request_id": "req-1"}, "request_id": "req-1"}"""
    assert refused(plain) is RefusalCode.UNSIGNED
    read = decoded(plain, plain=True)
    assert isinstance(read, EdgeCommand)
    assert (read.agent_id, read.kind, read.journal_key, read.key_id) == ("pi", CommandKind.TOOL, "req-1", "")


def test_a_signature_is_good_for_one_message_of_one_agent_under_one_prefix() -> None:
    data = encode_command(COMMAND, TOPICS, KEY, canonical)
    message = json.loads(data)
    changes: list[dict[str, Any]] = [{"epoch": 4}, {"deadline": 1e9}, {"payload": {}}, {"more": 1}]
    for change in changes:
        assert refused(json.dumps(message | change).encode()) is RefusalCode.BAD_SIGNATURE
    assert refused(data, TOPICS.of("pi2", AgentChannel.COMMANDS)) is RefusalCode.BAD_SIGNATURE
    assert refused(encode_command(COMMAND, Topics("barn"), KEY, canonical)) is RefusalCode.BAD_SIGNATURE
    assert refused(encode_command(COMMAND, TOPICS, OTHER_KEY, canonical)) is RefusalCode.UNKNOWN_KEY
    forged = message | {"signature": message["signature"] | {"key": OTHER_KEY.key_id}}
    assert refused(json.dumps(forged).encode(), plain=True) is RefusalCode.UNKNOWN_KEY
    del message["signature"]
    assert refused(json.dumps(message).encode()) is RefusalCode.UNSIGNED


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"command": "format_disk"}, RefusalCode.UNKNOWN_COMMAND),
        ({"command": None}, RefusalCode.MISSING_FIELD),
        ({"request_id": ""}, RefusalCode.INVALID_FIELD),
        ({"request_id": "x" * 201}, RefusalCode.INVALID_FIELD),
        ({"agent_id": "pi2"}, RefusalCode.WRONG_AGENT),
        ({"epoch": -1}, RefusalCode.INVALID_FIELD),
        ({"epoch": True}, RefusalCode.INVALID_FIELD),
        ({"deadline": "soon"}, RefusalCode.INVALID_FIELD),
        ({"payload": [1]}, RefusalCode.INVALID_FIELD),
        ({"sent_at": None}, RefusalCode.MISSING_FIELD),
    ],
)
def test_a_wrong_field_is_refused_and_the_refusal_says_whose_message_it_was(
    change: dict[str, Any], code: RefusalCode
) -> None:
    message = {"command": "ping", "request_id": "r", "agent_id": "pi", "epoch": 0, "sent_at": 1.0} | change
    found = decode_command(COMMANDS, json.dumps(message).encode(), TOPICS, None, canonical)
    assert isinstance(found, RefusedMessage)
    assert (found.code, found.agent_id) == (code, "pi")
    assert found.request_id == ("r" if message["request_id"] == "r" else "")


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"[]", b"{", b'"x"', b"{" * 5_000, b'{"a":' * 5_000, b'{"epoch": 1e999}', b'{"a":1,"a":2}', b"nan"],
)
def test_what_is_not_one_json_object_is_refused(data: bytes) -> None:
    assert refused(data, plain=True) is RefusalCode.NOT_JSON


def test_a_message_above_the_limit_is_refused_unread() -> None:
    assert refused(b"{" + b" " * 2_000 + b"}", most=1_000) is RefusalCode.TOO_LARGE


_ODD: list[Any] = [
    None, True, -1, 0, 1, 2**60, 1.5, 1e300, "", "x", "r-1", "\ud800", "x" * 300, [], [5], ["x"], [{}], [{"text": 5}],
    {}, {"key": "x"}, {"key": KEY.key_id, "value": "QUJD"}, {"status": "success"}, {"running": "x"}, {"name": "t"},
    {"digest": "d", "index": 0, "count": 1, "size": 1}, {"status": "failed", "error": {"code": "timeout"}},
]  # fmt: skip
_NAMES = """command payload request_id agent_id record_id project epoch attempt sent_at deadline session digest info
    status result stderr exit_code elapsed_ms error error_type outcome seq kind text fraction load tools boot chunk data
    heartbeat_s labels capabilities signature""".split()
_FIELDS = st.dictionaries(st.sampled_from(_NAMES), st.sampled_from(_ODD), max_size=8)


@settings(max_examples=150, deadline=None)
@given(message=_FIELDS, channel=st.sampled_from(list(AgentChannel)), word=st.sampled_from([*CommandKind, "x", None]))
def test_anything_at_all_is_a_value_or_a_refusal(
    message: dict[str, Any], channel: AgentChannel, word: str | None
) -> None:
    """What a compromised broker, orchestrator or device writes never raises, and is never half read."""
    data = json.dumps(message if word is None else {**message, "command": word, "request_id": "r"}).encode()
    for verifier in (None, TRUSTED):
        topic = TOPICS.of("pi", channel)
        assert isinstance(
            decode_command(topic, data, TOPICS, verifier, canonical, plain=True), EdgeCommand | RefusedMessage
        )
        found = decode_agent_message(topic, data, TOPICS, verifier, canonical, plain=True)
        assert isinstance(found, AgentMessage | RefusedMessage)
        if isinstance(found, EdgeReport):
            assert isinstance(read_tool_result(found.body, CALL), ToolResult | str)
        if isinstance(found, AgentCapabilities):
            offered_tools(found, Edge("pi"))
    read_tool_request(message)
    read_chunk(data)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert isinstance(decoded(data, plain=True), RefusedMessage)
    assert isinstance(read_chunk(data), RefusedMessage)


RESULTS = [
    ToolResult("c1", "bash", Status.SUCCESS, (Text("up 3 days"),), exit_code=0, stderr="w", elapsed_ms=12.5),
    ToolResult("c1", "bash", Status.SUCCESS, (Text("a"), Image("QUJD")), structured={"n": [1, 2**60]}),
    ToolResult("c1", "bash", Status.PARTIAL, (Text("half"),), untrusted=True, origins=("http://a/",)),
    ToolResult("c1", "bash", Status.SUCCESS),
    ToolResult.failed(CALL, Code.OUTCOME_UNKNOWN, "It was interrupted.", detail={"a": 1}),
    ToolResult.failed(CALL, Code.TIMEOUT, "It took too long.", exit_code=-9),
]


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_is_read_from_a_report_as_it_was(result: ToolResult) -> None:
    report = report_to(COMMAND, write_tool_result(result), 101.0)
    data = encode_agent_message(report, TOPICS, KEY, canonical)
    read = decode_agent_message(TOPICS.of("pi", AgentChannel.REPORTS), data, TOPICS, TRUSTED, canonical)
    assert isinstance(read, EdgeReport)
    assert (read.request_id, read.record_id, read.epoch, read.deadline) == ("r-1", "rec-1", 3, 130.5)
    assert read_tool_result(read.body, CALL) == result


@pytest.mark.parametrize(
    ("body", "status", "code", "text"),
    [
        ({"status": "success", "result": "temp=45.6°C", "exit_code": 0}, Status.SUCCESS, None, "temp=45.6°C"),
        ({"status": "success", "result": {"celsius": 45}}, Status.SUCCESS, None, '{"celsius":45}'),
        ({"status": "error", "error": "slow", "error_type": "timeout"}, Status.TIMEOUT, Code.TIMEOUT, "slow"),
        ({"status": "error"}, Status.FAILED, Code.EXECUTION_FAILED, "The agent reported an error"),
        ({"status": "odd", "result": "x"}, Status.FAILED, Code.EXECUTION_FAILED, "did not say which"),
    ],
)
def test_a_report_of_a_foreign_agent_is_a_result(body: dict[str, Any], status: Status, code: Code, text: str) -> None:
    result = read_tool_result(body, CALL)
    assert isinstance(result, ToolResult)
    assert (result.status, result.error.code if result.error else None) == (status, code)
    assert text in result.text


@pytest.mark.parametrize(
    "outcome",
    [5, {}, {"status": "fine"}, {"status": "success", "content": [5]}, {"status": "success", "content": [{"text": 1}]},
     {"status": "failed", "error": {"code": "x", "message": "m"}}, {"status": "success", "origins": 3},
     {"status": "success", "after_execution": "explode"}],
)  # fmt: skip
def test_an_outcome_that_is_not_one_is_said_to_be_wrong(outcome: Any) -> None:
    assert isinstance(read_tool_result({"status": "success", "outcome": outcome}, CALL), str)


def test_what_agents_tell_about_themselves_is_read_as_it_was_written() -> None:
    tool = Tool("read_temperature", "Read it.", target=Edge("pi"), needs=frozenset({"sensors"}))
    messages: list[AgentMessage] = [
        AgentStatus("pi", AgentState.DRAINING, "b", "s", 15.0, 1, 2, 4, 99.5),
        EdgeProgress("r-1", "pi", 3, ProgressKind.OUTPUT, "rec-1", 2, "half", 0.5, "stdout"),
        AgentCapabilities("pi", (write_tool(tool),), ("sensors",), {"room": "hall"}, "linux", "1", "b", "a Pi"),
    ]
    for message in messages:
        data = encode_agent_message(message, TOPICS, None, canonical)
        topic = TOPICS.of("pi", channel_of(message))
        assert decode_agent_message(topic, data, TOPICS, None, canonical) == message
    tools, faults = offered_tools(AgentCapabilities("pi", (write_tool(tool), {"name": "bad"})), Edge("pi"))
    assert tools == (tool,)
    assert [fault.partition(":")[0] for fault in faults] == ["bad"]


def test_a_refusal_is_reported_with_its_code() -> None:
    body = refusal_body(RefusedMessage(RefusalCode.EXPIRED, "it came too late"), "bash")
    result = read_tool_result(body, CALL)
    assert isinstance(result, ToolResult)
    assert result.error is not None
    assert (body["refused"], result.error.code) == ("expired", Code.TIMEOUT)


def test_chunks_make_the_message_in_any_order_and_however_often_they_come() -> None:
    whole = bytes(range(256)) * 40
    chunks = split_message(whole, 2_000)
    assert max(map(len, chunks)) <= 2_000
    assert all(map(is_chunk, chunks))
    joiner, answers = ChunkJoiner(), []
    for data in [*reversed(chunks[1:]), *chunks[1:], chunks[0]]:
        chunk = read_chunk(data)
        assert not isinstance(chunk, RefusedMessage)
        answers.append(joiner.add("t", chunk))
    assert [answer for answer in answers if answer is not None] == [whole]
    assert joiner.held_bytes == 0
    assert split_message(b"small", 2_000) == [b"small"]


def test_chunks_that_never_become_a_message_are_forgotten() -> None:
    joiner = ChunkJoiner(most_bytes=5_000, most_messages=3)
    for number in range(50):
        chunk = read_chunk(split_message(b"%04d" % number * 1_000, 2_000)[0])
        assert not isinstance(chunk, RefusedMessage)
        joiner.add("t", chunk)
        assert joiner.held_bytes <= 5_000
    wrong = [json.loads(one) for one in split_message(b"x" * 1_000 + b"y" * 1_500, 2_000)]
    wrong[1]["data"] = "QUJD"
    found = [joiner.add("t", read_chunk(json.dumps(one).encode())) for one in wrong]  # type: ignore[arg-type]
    assert isinstance(found[-1], RefusedMessage)


def test_keys_are_written_and_read() -> None:
    assert PublicKey.parse(f"{KEY.public} farm\n").key_id == KEY.key_id == PrivateKey.from_pem(KEY.pem).key_id
    for wrong in ("", "rsa abc", "ed25519", "ed25519 !", "ed25519 QUJD"):
        with pytest.raises(ValueError, match="a public key is written"):
            PublicKey.parse(wrong)
