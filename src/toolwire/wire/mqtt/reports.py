"""What agents send: reports, progress, status and capabilities, as values, and how they are written and read."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.protocol.tools import Target, Tool
from toolwire.wire.codecs.travelling import BadFrame, read_tool
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand
from toolwire.wire.mqtt.reading import FieldReader, readable_id
from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage
from toolwire.wire.mqtt.signing import Canonical, Opened, Signer, Verifier, open_message, seal
from toolwire.wire.mqtt.topics import AgentChannel, Topics

MAX_REPORT_BYTES = 16 * 1024 * 1024
"""Of a whole report, however many chunks it came in."""

UNSIGNED = "unsigned"
MOST_TOOLS = 1_000
LONGEST_TEXT = 64 * 1024


class AgentState(StrEnum):
    """Whether an agent takes calls. A draining one finishes what it has and takes no more."""

    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


class ProgressKind(StrEnum):
    """What a progress message tells: the call was accepted, a word about how far it is, or a piece of its output."""

    ACCEPTED = "accepted"
    PROGRESS = "progress"
    OUTPUT = "output"


class EdgeReport(Struct, frozen=True):
    """The answer to one command. `body` has the fields of the answer itself, such as `status` and `result`.

    What is said beside it repeats the newest command of the call, and is how a report is matched and fenced.
    """

    request_id: str
    agent_id: str
    command: CommandKind
    body: Mapping[str, Any]
    record_id: str = ""
    project: str = ""
    epoch: int = 0
    attempt: int = 1
    deadline: float | None = None
    digest: str = ""
    sent_at: float = 0.0
    key_id: str = ""

    @property
    def status(self) -> str:
        return str(self.body.get("status", ""))


class EdgeProgress(Struct, frozen=True):
    """A sign of life of a running call. `seq` counts from 1 in each run of a call."""

    request_id: str
    agent_id: str
    seq: int
    kind: ProgressKind
    record_id: str = ""
    epoch: int = 0
    text: str = ""
    fraction: float | None = None
    stream: str = ""
    key_id: str = ""


class AgentStatus(Struct, frozen=True):
    """Retained. `boot` is new with every process, `session` with every connection; the last will has both, too.

    It is sent again every `heartbeat_s`, with the load of that moment. `at` is the time by the clock of the agent.
    """

    agent_id: str
    state: AgentState
    boot: str = ""
    session: str = ""
    heartbeat_s: float = 0.0
    running: int = 0
    queued: int = 0
    slots: int = 0
    at: float = 0.0
    key_id: str = ""


class AgentCapabilities(Struct, frozen=True):
    """Retained: what an agent offers. `tools` are in the form of `wire.codecs.travelling`; see `offered_tools`.

    Where they are too many for one message, they are left out and it is `partial`: the command `tools_list` has them.
    `accepts` names the keys whose commands it obeys, by their ids, and `UNSIGNED` where it obeys unsigned ones; empty
    where it does not tell. So an orchestrator with another key knows, and no forged message needs an answer.
    """

    agent_id: str
    tools: tuple[Mapping[str, Any], ...] = ()
    capabilities: tuple[str, ...] = ()
    labels: Mapping[str, Any] = field(default_factory=dict)
    platform: str = ""
    version: str = ""
    boot: str = ""
    summary: str = ""
    partial: bool = False
    accepts: tuple[str, ...] = ()
    key_id: str = ""


AgentMessage = EdgeReport | EdgeProgress | AgentStatus | AgentCapabilities

_ENVELOPE = (
    "request_id", "agent_id", "command", "record_id", "project", "epoch", "attempt", "deadline", "digest", "sent_at"
)  # fmt: skip
_PROGRESS = ("request_id", "agent_id", "seq", "record_id", "epoch", "text", "fraction", "stream")
_CAPABILITIES = ("agent_id", "platform", "version", "boot", "summary")


def report_to(command: EdgeCommand, body: Mapping[str, Any], sent_at: float) -> EdgeReport:
    """The report that answers a command."""
    return EdgeReport(
        command.request_id, command.agent_id, command.kind, body, command.record_id, command.project, command.epoch,
        command.attempt, command.deadline, command.digest, sent_at,
    )  # fmt: skip


def refusal_body(refused: RefusedMessage, tool: str = "") -> dict[str, Any]:
    """The body of a report about a command that was refused."""
    code = refused.result_code
    error = {"code": code.value, "message": refused.message}
    out: dict[str, Any] = {"status": "error", "error": refused.message, "error_type": code.value}
    content = [{"error": refused.message, "code": code.value}]
    out |= {"refused": refused.code.value, "outcome": {"status": "failed", "content": content, "error": error}}
    return out | {"tool": tool} if tool else out


def write_agent_message(message: AgentMessage) -> dict[str, Any]:
    """Without a signature."""
    match message:
        case EdgeReport():
            return {**message.body, **_named(message, _ENVELOPE), "command": message.command.value}
        case AgentStatus():
            load = {"running": message.running, "queued": message.queued, "slots": message.slots}
            named = {"session": message.session, "heartbeat_s": message.heartbeat_s, "at": message.at}
            named |= {"agent_id": message.agent_id, "boot": message.boot}
            return _without_empty(named) | {"status": message.state.value, "load": load}
        case EdgeProgress():
            return _named(message, _PROGRESS) | {"kind": message.kind.value}
        case AgentCapabilities():
            offered: dict[str, Any] = {"tools": list(message.tools), "capabilities": list(message.capabilities)}
            offered |= {"labels": dict(message.labels)} | ({"partial": True} if message.partial else {})
            offered |= {"accepts": list(message.accepts)} if message.accepts else {}
            return _named(message, _CAPABILITIES) | offered


def encode_agent_message(message: AgentMessage, topics: Topics, signer: Signer | None, canonical: Canonical) -> bytes:
    """The payload for the topic of its channel; see `channel_of`."""
    topic = topics.of(message.agent_id, channel_of(message))
    return seal(topic, write_agent_message(message), signer, canonical)


def channel_of(message: AgentMessage) -> AgentChannel:
    match message:
        case EdgeReport():
            return AgentChannel.REPORTS
        case EdgeProgress():
            return AgentChannel.PROGRESS
        case AgentStatus():
            return AgentChannel.STATUS
        case AgentCapabilities():
            return AgentChannel.CAPABILITIES


def decode_agent_message(
    topic: str, data: bytes, topics: Topics, verifier: Verifier | None, canonical: Canonical,
    *, most: int = MAX_REPORT_BYTES, plain: bool = False,
) -> AgentMessage | RefusedMessage:  # fmt: skip
    """What an agent has written on one of its topics. `plain` accepts an unsigned one as the published format has it.

    The caller checks that `key_id` is a key of this very agent: any agent can sign with a key of its own.
    """
    address = topics.parse(topic)
    if isinstance(address, RefusedMessage):
        return address
    opened = open_message(topic, data, verifier, canonical, most=most, unsigned=plain)
    if isinstance(opened, RefusedMessage):
        return replace(opened, agent_id=address.agent_id)
    reader = FieldReader(opened.data)
    agent_id = reader.identifier("agent_id") or address.agent_id
    if agent_id != address.agent_id:
        reader.refuse(
            RefusedMessage(RefusalCode.WRONG_AGENT, "agent_id names another agent than the topic", "agent_id")
        )
    message = _read(address.channel, reader, agent_id, opened)
    if reader.fault is None and message is not None:
        return message
    refused = reader.fault or RefusedMessage(RefusalCode.BAD_TOPIC, f"agents write nothing on {topic[:120]!r}")
    known = readable_id(opened.data, "request_id")
    return replace(refused, request_id=known, agent_id=address.agent_id, proven=bool(opened.key_id))


def offered_tools(capabilities: AgentCapabilities, target: Target) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools that an agent offers, as tools at `target`, and what is wrong with those that could not be read."""
    tools, faults = [], []
    for one in capabilities.tools:
        try:
            tools.append(read_tool(one, target))
        except (BadFrame, KeyError, TypeError, ValueError, AttributeError) as wrong:
            faults.append(f"{str(one.get('name'))[:80]}: {str(wrong)[:200]}")
    return tuple(tools), tuple(faults)


def _read(channel: AgentChannel, reader: FieldReader, agent_id: str, opened: Opened) -> AgentMessage | None:
    match channel:
        case AgentChannel.REPORTS:
            return _read_report(reader, agent_id, opened)
        case AgentChannel.PROGRESS:
            return _read_progress(reader, agent_id, opened.key_id)
        case AgentChannel.STATUS:
            return _read_status(reader, agent_id, opened.key_id)
        case AgentChannel.CAPABILITIES:
            return _read_capabilities(reader, agent_id, opened.key_id)
        case AgentChannel.COMMANDS:
            return None


def _read_report(reader: FieldReader, agent_id: str, opened: Opened) -> EdgeReport:
    reader.text("status", 40, required=True)
    return EdgeReport(
        reader.identifier("request_id", required=True),
        agent_id,
        reader.choice("command", CommandKind, CommandKind.TOOL),
        {name: item for name, item in opened.data.items() if name not in _ENVELOPE},
        reader.identifier("record_id"),
        reader.text("project", 200),
        reader.count("epoch"),
        reader.count("attempt", 1),
        reader.number("deadline"),
        reader.identifier("digest"),
        reader.number("sent_at") or 0.0,
        opened.key_id,
    )


def _read_progress(reader: FieldReader, agent_id: str, key_id: str) -> EdgeProgress:
    return EdgeProgress(
        reader.identifier("request_id", required=True),
        agent_id,
        reader.count("seq", required=True),
        reader.choice("kind", ProgressKind, ProgressKind.PROGRESS),
        reader.identifier("record_id"),
        reader.count("epoch"),
        reader.text("text", LONGEST_TEXT),
        reader.number("fraction"),
        reader.text("stream", 20),
        key_id,
    )


def _read_status(reader: FieldReader, agent_id: str, key_id: str) -> AgentStatus:
    load = FieldReader(reader.object("load"))
    status = AgentStatus(
        agent_id,
        reader.choice("status", AgentState, AgentState.ONLINE),
        reader.identifier("boot"),
        reader.identifier("session"),
        reader.number("heartbeat_s") or 0.0,
        load.count("running"),
        load.count("queued"),
        load.count("slots"),
        reader.number("at") or 0.0,
        key_id,
    )
    if load.fault is not None:
        reader.refuse(load.fault)
    return status


def _read_capabilities(reader: FieldReader, agent_id: str, key_id: str) -> AgentCapabilities:
    return AgentCapabilities(
        agent_id,
        reader.objects("tools", MOST_TOOLS),
        reader.texts("capabilities", MOST_TOOLS),
        reader.object("labels"),
        reader.text("platform", 200),
        reader.text("version", 200),
        reader.identifier("boot"),
        reader.text("summary", 2_000),
        reader.flag("partial"),
        reader.texts("accepts", MOST_TOOLS),
        key_id,
    )


def _named(message: AgentMessage, names: tuple[str, ...]) -> dict[str, Any]:
    return _without_empty({name: getattr(message, name) for name in names})


def _without_empty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in fields.items() if item is not None and item != ""}
