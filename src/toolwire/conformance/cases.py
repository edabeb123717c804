"""The cases of the kit: each a call, the command that is sent, the card that is served, and what must come. Pure."""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.canonical import digest
from toolwire.protocol.bus import AfterExecution, BusMessage
from toolwire.protocol.subjects import Subject
from toolwire.wire.utp.cards import ToolCallCard, encode_call_card
from toolwire.wire.utp.fields import COMMAND_FIELDS
from toolwire.wire.utp.messages import CallOrigin, ToolCommand, encode_command
from toolwire.wire.utp.reading import MAX_MESSAGE_BYTES
from toolwire.wire.utp.violations import Refusal

NONCE = "{nonce}"
"""In arguments it stands for a word that each call has for itself."""

EPOCH = 7
_PAST = "2020-01-01T00:00:00Z"


class Expect(Enum):
    """What a service must do about a command."""

    RUN = "run the call once and report one successful result"
    FAIL = "answer with a failed result, and not run the call"
    NOT_RUN = "not run the call"


class TestedService(Struct, frozen=True):
    """What is tested: the subject of a service, the tool, and arguments with which a call of it succeeds."""

    subject: Subject
    tool: str
    arguments: Mapping[str, Any]
    run: str

    def nonce(self, case: str) -> str:
        return f"{self.run}-{case}"

    def filled(self, case: str) -> dict[str, Any]:
        """The arguments for one call."""
        text = json.dumps(dict(self.arguments)).replace(NONCE, self.nonce(case))
        filled: dict[str, Any] = json.loads(text)
        return filled


class ProtocolCase(Struct, frozen=True):
    """One call. `card` is what the endpoint serves for its pointer, None for nothing. It is sent `times` times.

    The endpoint refuses its first reads and writes with 503 where it is told to.
    """

    name: str
    about: str
    paragraph: str
    expect: Expect
    command: ToolCommand
    message: BusMessage
    card: bytes | None
    nonce: str
    times: int = 1
    failing_reads: int = 0
    failing_writes: int = 0


def all_cases(trial: TestedService) -> list[ProtocolCase]:
    """The cases that need nothing but messages, in the order in which they are sent; the last one is a valid call."""
    return [make(trial) for make in _CASES]


def valid_case(trial: TestedService, name: str, about: str, paragraph: str = "callbacks", **more: Any) -> ProtocolCase:
    """A call that must be run."""
    command, card = _command(trial, name), _card(trial, name)
    return _case(trial, name, about, paragraph, Expect.RUN, command, card, **more)


def _case(
    trial: TestedService,
    name: str,
    about: str,
    paragraph: str,
    expect: Expect,
    command: ToolCommand,
    card: ToolCallCard | None,
    change: Callable[[BusMessage], BusMessage] = lambda message: message,
    **more: Any,
) -> ProtocolCase:
    message = encode_command(command)
    served = None if card is None else encode_call_card(card)
    assert not isinstance(message, Refusal), message
    assert not isinstance(served, Refusal), served
    return ProtocolCase(name, about, paragraph, expect, command, change(message), served, trial.nonce(name), **more)


def _command(trial: TestedService, name: str) -> ToolCommand:
    return ToolCommand(
        trial.subject,
        "conformance",
        f"turn-{trial.nonce(name)}",
        EPOCH,
        f"call-{trial.nonce(name)}",
        AfterExecution.SUSPEND,
        f"card-{trial.nonce(name)}",
        step_id=f"step-{trial.nonce(name)}",
        tool_name=trial.tool,
        arguments_digest=digest(trial.filled(name)),
        origin=CallOrigin(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    )


def _card(trial: TestedService, name: str) -> ToolCallCard:
    command = _command(trial, name)
    return ToolCallCard(
        command.tool_call_card_id,
        trial.subject.project,
        command.agent_turn_id,
        command.tool_call_id,
        trial.tool,
        trial.filled(name),
        step_id=command.step_id,
        turn_epoch=EPOCH,
        arguments_digest=command.arguments_digest,
        target_subject=str(trial.subject),
        after_execution=command.after_execution,
    )


def _payload(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Callable[[BusMessage], BusMessage]:
    return lambda message: replace(message, data=json.dumps(change(json.loads(message.data))).encode())


def _headers(change: Callable[[dict[str, str]], Mapping[str, str]]) -> Callable[[BusMessage], BusMessage]:
    return lambda message: replace(message, headers=change(dict(message.headers)))


def _without(*names: str) -> Callable[[BusMessage], BusMessage]:
    return _payload(lambda body: {name: value for name, value in body.items() if name not in names})


def _first(trial: TestedService) -> ProtocolCase:
    return valid_case(trial, "valid", "A valid command gives one result card and a callback to it")


def _repeated(trial: TestedService) -> ProtocolCase:
    return valid_case(trial, "repeated", "The same command three times is run once and has one result card", times=3)


def _unknown_fields(trial: TestedService) -> ProtocolCase:
    change = _payload(lambda body: {**body, "x_from_the_future": {"deep": [1, None]}})
    return valid_case(trial, "unknown-fields", "Unknown fields are ignored", "commands", change=change)


def _payload_only(trial: TestedService) -> ProtocolCase:
    return valid_case(
        trial,
        "payload-only",
        "The identity is accepted from the payload alone",
        "commands",
        change=_headers(lambda _: {}),
    )


def _headers_only(trial: TestedService) -> ProtocolCase:
    names = [field.name for field in COMMAND_FIELDS if field.header]
    about = "The identity is accepted from the headers alone"
    return valid_case(trial, "headers-only", about, "commands", change=_without(*names, "project_id", "channel_id"))


def _bad_trace(trial: TestedService) -> ProtocolCase:
    change = _headers(lambda headers: {**headers, "traceparent": "not-a-trace"})
    about = "A wrong traceparent does not stop a call"
    both = lambda message: change(_payload(lambda body: {**body, "traceparent": "not-a-trace"})(message))  # noqa: E731
    return valid_case(trial, "bad-trace", about, "commands", change=both)


def _no_pointer(trial: TestedService) -> ProtocolCase:
    about = "A command without tool_call_card_id is answered with a failed result"
    return _refused(trial, "no-pointer", about, Expect.FAIL, _without("tool_call_card_id"))


def _inline(trial: TestedService) -> ProtocolCase:
    change = _payload(lambda body: {**body, "Arguments": trial.filled("inline")})
    return _refused(trial, "inline", "A command with inline arguments is refused", Expect.FAIL, change)


def _other_version(trial: TestedService) -> ProtocolCase:
    change = _headers(lambda headers: {**headers, "CG-Version": "v1r3"})
    about = "A command of another protocol version is refused"
    return _refused(trial, "other-version", about, Expect.NOT_RUN, change, paragraph="subjects")


def _disagreement(trial: TestedService) -> ProtocolCase:
    change = _headers(lambda headers: {**headers, "CG-Tool-Call-Id": "another-call"})
    about = "A command whose headers and payload differ is refused"
    return _refused(trial, "disagreement", about, Expect.NOT_RUN, change)


def _oversized(trial: TestedService) -> ProtocolCase:
    change = _payload(lambda body: {**body, "x_padding": "x" * MAX_MESSAGE_BYTES})
    about = "A payload of more than 64 KiB is not accepted"
    return _refused(trial, "oversized", about, Expect.NOT_RUN, change, paragraph="limits")


def _poison(trial: TestedService) -> ProtocolCase:
    about = "A payload that is not JSON does no harm"
    return _refused(trial, "poison", about, Expect.NOT_RUN, lambda message: replace(message, data=b'{"agent_id": \xff'))


def _unknown_card(trial: TestedService) -> ProtocolCase:
    about = "A command that points to no card is not run"
    return replace(_refused(trial, "unknown-card", about, Expect.NOT_RUN), card=None)


def _other_project(trial: TestedService) -> ProtocolCase:
    return _wrong_card(trial, "other-project", "Another project's card is not run", project_id="another-project")


def _other_call(trial: TestedService) -> ProtocolCase:
    return _wrong_card(trial, "other-call", "The card of another call is not run", tool_call_id="another-call")


def _other_tool(trial: TestedService) -> ProtocolCase:
    return _wrong_card(trial, "other-tool", "The card of another tool is not run", tool_name="another_tool")


def _other_digest(trial: TestedService) -> ProtocolCase:
    return _wrong_card(trial, "other-digest", "Arguments with another digest are not run", arguments_digest="0" * 64)


def _stale(trial: TestedService) -> ProtocolCase:
    about = "A command with an older epoch than its card is stale and not run"
    return _wrong_card(trial, "stale", about, turn_epoch=EPOCH + 1)


def _late(trial: TestedService) -> ProtocolCase:
    return _wrong_card(trial, "late", "A call whose deadline is over is not run", "cards", deadline=_PAST)


def _read_again(trial: TestedService) -> ProtocolCase:
    about = "A card that cannot be read at first (503) is read again"
    return valid_case(trial, "read-again", about, "cards", failing_reads=2)


def _write_again(trial: TestedService) -> ProtocolCase:
    about = "A result card that cannot be written at first (503) is written again, and the call not run again"
    return valid_case(trial, "write-again", about, "cards", failing_writes=2)


def _last(trial: TestedService) -> ProtocolCase:
    return valid_case(trial, "afterwards", "After all of that a valid command is run as before", "the-bus")


def _refused(
    trial: TestedService,
    name: str,
    about: str,
    expect: Expect,
    change: Callable[[BusMessage], BusMessage] = lambda message: message,
    paragraph: str = "commands",
) -> ProtocolCase:
    return _case(trial, name, about, paragraph, expect, _command(trial, name), _card(trial, name), change)


def _wrong_card(trial: TestedService, name: str, about: str, paragraph: str = "commands", **parts: Any) -> ProtocolCase:
    card = replace(_card(trial, name), **parts)
    return _case(trial, name, about, paragraph, Expect.NOT_RUN, _command(trial, name), card)


_CASES: tuple[Callable[[TestedService], ProtocolCase], ...] = (
    _first, _repeated, _unknown_fields, _payload_only, _headers_only, _bad_trace, _no_pointer, _inline, _other_version,
    _disagreement, _oversized, _poison, _unknown_card, _other_project, _other_call, _other_tool, _other_digest, _stale,
    _late, _read_again, _write_again, _last,
)  # fmt: skip
