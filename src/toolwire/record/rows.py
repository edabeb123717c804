"""Nouns as rows of the SQLite tables, and back."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import uuid_utils
from msgspec.structs import replace

from toolwire.protocol.agents import AgentSpec
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, Note, Reply, UserMessage
from toolwire.protocol.records import AuditRow, CallCard, short_name
from toolwire.protocol.tools import USUAL, Agreement
from toolwire.protocol.tracing import NO_TRACE, read_trace
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import Wait
from toolwire.record import story
from toolwire.record.tally import counted_as
from toolwire.wire.codecs.faithful import dump, load
from toolwire.wire.codecs.stored import (
    read_call,
    read_grant,
    read_limits,
    read_message,
    read_reply,
    read_result,
    read_spec,
    read_wait,
    write_call,
    write_grant,
    write_limits,
    write_message,
    write_reply,
    write_result,
    write_spec,
    write_wait,
)

DEFAULT = "default"
_PROJECT_SIGN = "\x1e"
CALL = "tool.call"
RESULT = "tool.result"
REPLY = "turn.reply"
NOTE = "turn.note"

Row = tuple[Any, ...]
TurnKey = tuple[str, str]
"""The project and the id of a turn, spelled as SQL can hold them."""
CallKey = tuple[str, str, str]
"""The project, the turn and the id of a call."""
LeftTurn = tuple[int, tuple[Message, ...]]
"""The number of a turn that was interrupted, and what was said in it until then."""


def column(text: str) -> str:
    """Text that SQLite can hold: half a surrogate pair becomes its escape. What must come back whole goes in JSON."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def project_key(project: str, name: str) -> str:
    """A name that each project has for itself, as one text; that of the default project stays as it is."""
    if project == DEFAULT and not name.startswith(_PROJECT_SIGN):
        return column(name)
    return f"{_PROJECT_SIGN}{column(project)}{_PROJECT_SIGN}{column(name)}"


def columns(*texts: str) -> tuple[str, ...]:
    """Several at once: one look at all of them is cheaper than one at each."""
    return texts if "".join(texts).isascii() else tuple(map(column, texts))


def turn_key(turn: Turn) -> TurnKey:
    project, turn_id = turn.project, turn.id
    if project.isascii() and turn_id.isascii():
        return project, turn_id
    return column(project), column(turn_id)


def call_key(card: CallCard) -> CallKey:
    project, turn_id, call_id = columns(card.project, card.turn_id, card.call.id)
    return project, turn_id, call_id


def note_keys(card: CallCard) -> tuple[str, ...]:
    """Under what a turn is found in the notes about calls that begin; that of earlier versions, too."""
    key, old = project_key(card.project, card.turn_id), column(card.turn_id)
    return (key,) if key == old else (key, old)


def card_row(card: CallCard) -> Row:
    context: dict[str, Any] = {
        "call": write_call(card.call),
        "epoch": card.epoch,
        "args_digest": card.args_digest,
        "effect": card.effect,
        "tool_version": card.tool_version,
    }
    if card.attempt:
        context["attempt"] = card.attempt
        if card.token and card.token != card.record_id:
            context["token"] = card.token
    if card.step:
        context["step"] = card.step
    if card.agreed is not USUAL:
        context["after_execution"], context["controls_turn"] = card.agreed.after_execution, card.agreed.controls_turn
    record_id, project, name, agent, turn_id, call_id = columns(
        card.record_id, card.project, short_name(card.call.name), card.agent, card.turn_id, card.call.id
    )
    return record_id, project, CALL, name, dump(context), agent, card.created_at, turn_id, call_id


def result_row(card: CallCard, result: ToolResult, at: float) -> Row:
    """A result as a row; its title is the name under which the call is counted."""
    project, name, agent, turn_id, call_id = columns(
        card.project, counted_as(card), card.agent, card.turn_id, card.call.id
    )
    return new_id(), project, RESULT, name, dump(write_result(result)), agent, at, turn_id, call_id


def said_row(turn: Turn, message: Reply | Note, at: float) -> Row:
    schema_name, context = (
        (REPLY, write_reply(message)) if isinstance(message, Reply) else (NOTE, {"text": message.text})
    )
    names = columns(new_id(), turn.project, schema_name, "")
    return (*names, dump(context), column(turn.agent), at, column(turn.id), None)


def audit_rows(rows: Iterable[AuditRow]) -> list[Row]:
    return [
        (
            row.at,
            *columns(
                row.event,
                row.project,
                row.agent,
                row.turn_id,
                row.call_id,
                row.tool,
                row.rule,
                row.status,
                row.code,
                row.args_digest,
            ),
            row.elapsed_ms,
            dump(row.detail) if row.detail else "{}",
        )
        for row in rows
    ]


def read_audit(row: Row) -> AuditRow:
    seq, *plain, detail, _digest = row
    return replace(AuditRow(*plain), detail=load(detail), seq=seq)


def read_card(row: Row) -> CallCard:
    """A call card from its own row, its newest claim and its result."""
    record_id, turn_id, project, agent, created_at, context, *claim, detached, cancel, result = row
    starts, owner, until, epoch, token = claim
    kept = load(context)
    attempt, ended = kept.get("attempt", 0) + (starts or 0), result is not None
    return CallCard(
        record_id=record_id,
        turn_id=turn_id,
        epoch=kept["epoch"] if epoch is None else epoch,
        call=read_call(kept["call"]),
        args_digest=kept["args_digest"],
        project=project,
        agent=agent,
        effect=kept.get("effect", "unsafe"),
        tool_version=kept.get("tool_version", ""),
        created_at=created_at,
        attempt=attempt,
        result=read_result(load(result)) if ended else None,
        token="" if ended or not attempt else token or kept.get("token", record_id),
        owner=owner or "",
        until=until,
        step=kept.get("step", 0),
        detached=bool(detached),
        cancel=cancel or "",
        agreed=USUAL if "after_execution" not in kept else _read_agreement(kept),
    )


def _read_agreement(kept: dict[str, Any]) -> Agreement:
    return Agreement(AfterExecution(kept["after_execution"]), kept["controls_turn"])


def read_said(schema_name: str, context: str) -> story.Said:
    kept = load(context)
    return read_reply(kept) if schema_name == REPLY else Note(kept["text"])


def opening_json(turn: Turn) -> str:
    """What a turn began with, apart from the columns and the history."""
    opening = {"system": turn.system, "grant": write_grant(turn.grant), "limits": write_limits(turn.limits)}
    if asks(turn):
        opening["question"] = turn.question
    if turn.flags:
        opening["flags"] = list(turn.flags)
    if turn.spec is not None:
        opening["spec"] = _spec_json(turn.spec)
    if turn.trace:
        opening["trace"] = turn.trace.headers
    return dump(opening)


@lru_cache(maxsize=64)
def _spec_json(spec: AgentSpec) -> dict[str, Any]:
    """An agent begins many turns, and is the same in all of them."""
    return write_spec(spec)


def asks(turn: Turn) -> bool:
    return bool(turn.messages) and isinstance(turn.messages[-1], UserMessage)


def history_of(turn: Turn) -> tuple[Message, ...]:
    """What was said before the question."""
    return turn.messages[:-1] if asks(turn) else turn.messages


def history_json(messages: Iterable[Message]) -> str:
    return dump([write_message(message) for message in messages])


def read_history(data: str) -> tuple[Message, ...]:
    return tuple(read_message(message) for message in load(data))


def left_json(left: Iterable[LeftTurn]) -> str:
    return dump([[seq, [write_message(message) for message in messages]] for seq, messages in left])


def read_left(data: str) -> tuple[LeftTurn, ...]:
    return tuple((seq, tuple(map(read_message, messages))) for seq, messages in load(data))


def question(opening: str) -> tuple[Message, ...]:
    kept = load(opening)
    return (UserMessage(kept["question"]),) if "question" in kept else ()


def read_opening(row: Row, history: tuple[Message, ...]) -> Turn:
    turn_id, project, agent, thread, model, epoch, opening, started_at, waits = row
    kept = load(opening)
    return Turn(
        id=turn_id,
        project=project,
        agent=agent,
        thread=thread,
        epoch=epoch,
        model=model,
        system=kept.get("system", ""),
        grant=read_grant(kept["grant"]),
        limits=read_limits(kept["limits"]),
        started_at=started_at,
        messages=(*history, *question(opening)),
        flags=tuple(kept.get("flags", ())),
        spec=read_spec(kept["spec"]) if "spec" in kept else None,
        waits=read_waits(waits),
        trace=read_trace(kept["trace"]) if "trace" in kept else NO_TRACE,
    )


def waits_json(waits: Iterable[Wait]) -> str:
    """What a turn waits for, as its column; empty where that is nothing, as for nearly all."""
    return dump([write_wait(wait) for wait in waits]) if waits else ""


def read_waits(data: str) -> tuple[Wait, ...]:
    return tuple(map(read_wait, load(data))) if data else ()


def new_id() -> str:
    return str(uuid_utils.uuid7())


def upsert(table: str, key: Sequence[str], *columns: str) -> str:
    """The statement that writes a row, in the place of the one with the same key."""
    names = (*key, *columns)
    values = ", ".join("?" * len(names))
    news = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}) ON CONFLICT ({', '.join(key)}) DO UPDATE SET {news}"  # noqa: E501, S608
