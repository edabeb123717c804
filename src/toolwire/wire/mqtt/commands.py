"""Commands to an agent: values, and how they are written and read."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.wire.mqtt.reading import FieldReader, parse_message, readable_id
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.mqtt.signing import Canonical, Opened, Signer, Verifier, open_message, seal
from toolwire.wire.mqtt.topics import AgentChannel, Topics

MAX_COMMAND_BYTES = 256 * 1024
LONGEST_NAME = 200
MOST_SOURCES = 100
LONGEST_SOURCE = 1_000
"""Of what a call may have been led by (`tainted_by`), so many sources are told, each in so many characters."""


class CommandKind(StrEnum):
    """What an agent can be told. The first eight are words of the published format, the rest are ours."""

    TOOL = "tool"
    PING = "ping"
    TOOLS_LIST = "tools_list"
    GET_METRICS = "get_metrics"
    EXECUTE = "execute"
    UPDATE_STRATEGY = "update_strategy"
    EVOLUTION = "evolution"
    SHUTDOWN = "shutdown"
    CANCEL = "cancel"
    DRAIN = "drain"
    FETCH = "fetch"
    INSTALL_SKILL = "install_skill"
    LOGS = "logs"


class EdgeCommand(Struct, frozen=True):
    """One command.

    `request_id` names this message and comes back in its report. `record_id` names the call, however often its command
    is sent: the agent runs it once and repeats its report. `sent_at` and `deadline` are Unix seconds by the clock of
    the sender; the call must not begin after the deadline. `session` is what the agent's last status said: a command
    that repeats it was sent after the agent connected, whatever the clocks say. `digest` is that of the arguments.
    """

    kind: CommandKind
    request_id: str
    agent_id: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    record_id: str = ""
    project: str = ""
    epoch: int = 0
    attempt: int = 1
    sent_at: float = 0.0
    deadline: float | None = None
    session: str = ""
    digest: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    key_id: str = ""

    @property
    def journal_key(self) -> str:
        """What the agent knows the call by."""
        return self.record_id or self.request_id


class ToolRequest(Struct, frozen=True):
    """The payload of a `tool` command."""

    tool: str
    parameters: Mapping[str, Any]
    timeout_s: float | None = None
    version: str = ""


def tool_payload(request: ToolRequest) -> dict[str, Any]:
    out: dict[str, Any] = {"tool": request.tool, "parameters": dict(request.parameters)}
    if request.timeout_s is not None:
        out["timeout_ms"] = round(request.timeout_s * 1000)
    if request.version:
        out["version"] = request.version
    return out


def read_tool_request(payload: Mapping[str, Any]) -> ToolRequest | RefusedMessage:
    reader = FieldReader(payload)
    name = reader.text("tool", LONGEST_NAME, required=True)
    parameters = reader.object("parameters")
    timeout_ms = reader.number("timeout_ms")
    version = reader.text("version", LONGEST_NAME)
    if reader.fault is not None:
        return reader.fault
    return ToolRequest(name, parameters, None if timeout_ms is None else timeout_ms / 1000, version)


def write_command(command: EdgeCommand) -> dict[str, Any]:
    """Without a signature. What has its usual value is left out."""
    out: dict[str, Any] = {
        "command": command.kind.value, "payload": dict(command.payload), "request_id": command.request_id,
        "agent_id": command.agent_id, "epoch": command.epoch, "attempt": command.attempt, "sent_at": command.sent_at,
    }  # fmt: skip
    texts = ("record_id", "project", "session", "digest")
    out |= {name: value for name in texts if (value := getattr(command, name))}
    if command.deadline is not None:
        out["deadline"] = command.deadline
    if command.info:
        out["info"] = dict(command.info)
    return out


def encode_command(command: EdgeCommand, topics: Topics, signer: Signer | None, canonical: Canonical) -> bytes:
    """The payload for the agent's topic of commands."""
    topic = topics.of(command.agent_id, AgentChannel.COMMANDS)
    return seal(topic, write_command(command), signer, canonical)


def decode_command(
    topic: str, data: bytes, topics: Topics, verifier: Verifier | None, canonical: Canonical,
    *, most: int = MAX_COMMAND_BYTES, plain: bool = False,
) -> EdgeCommand | RefusedMessage:  # fmt: skip
    """The command that a payload is. `plain` accepts an unsigned one as the published format has it.

    Whether it is stale, expired or repeated is for the agent, which has a clock and a journal.
    """
    address = topics.parse(topic)
    if isinstance(address, RefusedMessage):
        return address
    if address.channel is not AgentChannel.COMMANDS:
        return RefusedMessage(
            RefusalCode.BAD_TOPIC, f"{topic[:120]!r} is not a topic of commands", agent_id=address.agent_id
        )
    opened = open_message(topic, data, verifier, canonical, most=most, unsigned=plain)
    if isinstance(opened, RefusedMessage):
        return replace(opened, agent_id=address.agent_id)
    read = _read_command(opened, address.agent_id, complete=not plain or bool(opened.key_id))
    if isinstance(read, RefusedMessage):
        known = readable_id(opened.data, "request_id")
        return replace(read, request_id=known, agent_id=address.agent_id, proven=bool(opened.key_id))
    return read


def _read_command(opened: Opened, agent_id: str, *, complete: bool) -> EdgeCommand | RefusedMessage:
    reader = FieldReader(opened.data)
    word = reader.text("command", LONGEST_NAME, required=True)
    command = EdgeCommand(
        CommandKind.PING,
        reader.identifier("request_id", required=True),
        reader.identifier("agent_id", required=complete) or agent_id,
        reader.object("payload"),
        reader.identifier("record_id"),
        reader.text("project", LONGEST_NAME),
        reader.count("epoch", required=complete),
        reader.count("attempt", 1),
        reader.number("sent_at", required=complete) or 0.0,
        reader.number("deadline"),
        reader.identifier("session"),
        reader.identifier("digest"),
        reader.object("info"),
        opened.key_id,
    )
    if reader.fault is not None:
        return reader.fault
    if command.agent_id != agent_id:
        return RefusedMessage(RefusalCode.WRONG_AGENT, "agent_id names another agent than the topic", "agent_id")
    if word not in _KINDS:
        return RefusedMessage(RefusalCode.UNKNOWN_COMMAND, f"there is no command {word[:40]!r}", "command")
    return replace(command, kind=CommandKind(word))


def read_stored_command(data: bytes) -> EdgeCommand:
    """A command as an agent has kept it: what `write_command` made of one, with the id of the key that signed it."""
    message = parse_message(data, len(data))
    assert isinstance(message, dict)
    key_id = str(message.pop("key_id", ""))
    read = _read_command(Opened("", message, key_id), str(message["agent_id"]), complete=True)
    assert isinstance(read, EdgeCommand)
    return read


_KINDS = frozenset(kind.value for kind in CommandKind)
