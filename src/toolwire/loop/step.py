"""The loop as a question asked of a value, and the folds that move the value on.

```text
            ┌──────────────── note ────────────────┐
            ▼                                      │
  start ─ AskModel ── reply without calls ── Finished (answered)
            ▲   │
            │   └─ reply with calls ── RunCalls ── a result that ends the turn ── Finished (delivered)
            └───────────── results ───────┘
```

Limits turn `AskModel` into its last form (tools off), or end the turn at once. A stored turn is the fold of its
events over its opening, so resuming after a crash is folding and asking `next_step` again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.loop.limits import (
    CLOSING_WORDS,
    ECHOES_KEPT,
    FINAL_REQUEST,
    MOST_REMINDERS,
    WARNING,
    WITHOUT_ANSWER,
    closing_reason,
    ending_reason,
    last_reminder,
    reminder,
    without_required,
)
from toolwire.protocol.bus import CONTROL, AfterExecution
from toolwire.protocol.calls import Problem, ToolCall, ToolResult
from toolwire.protocol.chat import NO_USAGE, Message, Note, Reply, ResultsMessage, untrusted_sources
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import Delivery
from toolwire.protocol.turns import RESTORED_EPOCHS, Ending, EndReason, Limits, Turn

Echo = tuple[str, ...]
"""The digest of a call's arguments, the tool's name, and how it ended in which words."""

_SUCCESS = Status.SUCCESS
_MOST_PROBLEMS = 64
_MEANT_A_CALL = {"truncated", "malformed", "unknown_tool", "mentioned", "unclear"}


class AskModel(Struct, frozen=True):
    """The model must speak next. `closing` says why this is the last step; then tools are off."""

    closing: EndReason | None = None


class RunCalls(Struct, frozen=True, gc=False):
    """These calls want results."""

    calls: tuple[ToolCall, ...]


class Finished(Struct, frozen=True):
    ending: Ending


Step = AskModel | RunCalls | Finished

_ASK = AskModel()


def is_bounded(limits: Limits) -> bool:
    """Whether a turn can end at any moment, since its time, its tokens or its money are limited."""
    return limits.deadline_s is not None or limits.tokens is not None or limits.cost_usd is not None


def next_step(turn: Turn, now: float) -> Step:
    """Read the turn so far and say what it needs next."""
    if turn.ending is not None:
        return Finished(turn.ending)
    if is_bounded(turn.limits) and (reason := ending_reason(turn, now)):
        return Finished(Ending(reason, last_words(turn) or WITHOUT_ANSWER[reason]))
    if turn.pending:
        return RunCalls(turn.pending)
    reason = turn.closing or closing_reason(turn)
    return _ASK if reason is None else AskModel(reason)


def with_last_request(turn: Turn) -> Turn:
    """The turn as it stands when the model is asked: on the last step it carries the request for an answer."""
    reason = closing_reason(turn) if turn.closing is None else None
    if reason is None:
        return turn
    words = last_reminder(turn) if turn.limits.must_end_with else f"{CLOSING_WORDS[reason]} {FINAL_REQUEST}"
    note = Note(words)
    return replace(turn, closing=reason, messages=(*turn.messages, note))


def within_step(turn: Turn, reply: Reply) -> tuple[Reply, int]:
    """The reply with the calls that a step may have and one that is refused for all others; how many are left out.

    A provider wants a result for each call that it is shown again, so those are left out of the reply itself.
    """
    kept = turn.limits.calls_per_step + 1
    left_out = len(reply.calls) - kept + reply.left_out
    if left_out <= 0:
        return reply, 0
    problems = [one for one in reply.problems if one.call is None or one.call < kept][:_MOST_PROBLEMS]
    told = Problem("too_many_calls", f"{left_out} more calls of this reply were left out")
    carry = reply.carry
    if carry is not None:
        items = [
            item for item in carry.get("items", ()) if not (isinstance(item.get("call"), int) and item["call"] >= kept)
        ]
        carry = {**carry, "items": items}
    return replace(reply, calls=reply.calls[:kept], problems=(*problems, told), carry=carry), left_out


def with_own_ids(turn: Turn, reply: Reply) -> Reply:
    """The reply with our own ids on its calls: a function of turn, step and place, so never repeated.

    A turn of a store that was restored may make another call in the same place than it did after the backup.
    """
    if not reply.calls:
        return reply
    stem = f"call_{turn.id[-12:]}_{turn.iterations + 1}"
    if turn.epoch >= RESTORED_EPOCHS:
        stem = f"{stem}_r{turn.epoch // RESTORED_EPOCHS}"
    if len(reply.calls) == 1:  # as nearly always
        return replace(reply, calls=(replace(reply.calls[0], id=f"{stem}_1"),))
    return replace(reply, calls=tuple([replace(call, id=f"{stem}_{n}") for n, call in enumerate(reply.calls, 1)]))


def append_reply(turn: Turn, reply: Reply) -> Turn:
    """The turn after a reply of the model (to the turn as `asked` left it)."""
    iterations = turn.iterations + 1
    usage = turn.usage if reply.usage is NO_USAGE else turn.usage + reply.usage
    if (turn.closing is not None and not turn.limits.must_end_with) or not turn.limits.tools_enabled:
        said = replace(reply, calls=()) if reply.calls else reply
        reason = turn.closing or EndReason.ANSWERED
        ending = Ending(reason, reply.content.strip() or WITHOUT_ANSWER.get(reason, ""))
        return replace(turn, usage=usage, iterations=iterations, messages=(*turn.messages, said), ending=ending)
    messages = (*turn.messages, reply)
    if reply.calls:
        return replace(turn, usage=usage, iterations=iterations, messages=messages, pending=reply.calls)
    if turn.closing is None and (complaint := _unreadable(reply)):
        messages = (*messages, Note(complaint))
        failures = turn.failures + 1
        return replace(turn, usage=usage, iterations=iterations, messages=messages, failures=failures)
    if turn.limits.must_end_with:
        return _reminded(replace(turn, usage=usage, iterations=iterations, messages=messages))
    ending = Ending(EndReason.ANSWERED, reply.content.strip())
    return replace(turn, usage=usage, iterations=iterations, messages=messages, ending=ending)


def _reminded(turn: Turn) -> Turn:
    """The turn after a model has not ended it with a tool that it must end with: told so, or ended for good."""
    if turn.reminders >= MOST_REMINDERS:
        words = last_words(turn)
        said = without_required(turn)
        ending = Ending(EndReason.MUST_END_WITH, f"{said} Its last words: {words}" if words else said)
        return replace(turn, ending=ending)
    note = Note(reminder(turn))
    return replace(turn, messages=(*turn.messages, note), reminders=turn.reminders + 1)


def append_results(turn: Turn, results: Sequence[ToolResult], echoes: Sequence[Echo]) -> Turn:
    """The turn after all calls of its last reply have results; `echoes` are those that should make progress."""
    failed, tainted, terminated = 0, turn.tainted, False
    for result in results:
        if result.status is not _SUCCESS and result.is_failure:
            failed += 1
        if result.untrusted:
            tainted = True
        if result.after_execution is not None:
            terminated = True
    # Within one step the same call twice is no repetition yet: the model has not seen the first result.
    if len(echoes) == 1:  # as nearly always
        kept = (*turn.echoes, echoes[0])[-ECHOES_KEPT:]
        repeats = kept.count(echoes[0])
    else:
        kept = (*turn.echoes, *dict.fromkeys(echoes))[-ECHOES_KEPT:]
        repeats = max(map(kept.count, echoes), default=0)
    messages: tuple[Message, ...] = (*turn.messages, ResultsMessage(tuple(results)))
    ending = _delivered(results) if results and results[0].delivery else None
    required = turn.limits.must_end_with
    if terminated or required:
        ending = _terminated(results, required) or (None if required else ending)
    warned = turn.warned
    if repeats > 1 and not warned and ending is None:
        messages, warned = (*messages, Note(WARNING)), True
    failures = turn.failures + 1 if failed == len(results) else 0
    after = replace(
        turn, messages=messages, pending=(), calls=turn.calls + len(results), failures=failures,
        failed_calls=turn.failed_calls + failed, echoes=kept, repeats=repeats, warned=warned, tainted=tainted,
        ending=ending,
    )  # fmt: skip
    return _reminded(after) if required and turn.closing is not None and ending is None else after


def was_tainted(messages: Iterable[Message]) -> bool:
    """Whether some of what was said before is untrusted."""
    return bool(untrusted_sources(messages))


def append_note(turn: Turn, note: Note) -> Turn:
    """The turn after a word to the model from outside."""
    return replace(turn, messages=(*turn.messages, note))


def end_turn(turn: Turn, ending: Ending) -> Turn:
    """The turn ended from outside: by a person, a cancellation or a limit."""
    return replace(turn, ending=ending, pending=())


def last_words(turn: Turn) -> str:
    """The newest text that the model wrote in this turn, empty when it wrote none."""
    for message in reversed(turn.messages):
        if isinstance(message, Reply) and message.content.strip() and not _calls_unknown_tool(message):
            return message.content.strip()
        if not isinstance(message, (Reply, ResultsMessage, Note)):
            break
    return ""


def _calls_unknown_tool(reply: Reply) -> bool:
    """Whether the text of a reply is a call of a tool that was not offered: nothing to end a turn with."""
    return not reply.calls and any(problem.code == "unknown_tool" for problem in reply.problems)


def calls_of(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """All calls in a stretch of conversation, in order."""
    return tuple(call for message in messages if isinstance(message, Reply) for call in message.calls)


def _unreadable(reply: Reply) -> str:
    """What to tell a model whose reply is neither an answer nor a call; empty when the reply is fine."""
    for problem in reply.problems:
        if problem.code in _MEANT_A_CALL:
            ending = "" if problem.message[-1:] in ".!?" else "."
            return f"{problem.message}{ending} If you meant to call a tool, repeat the call in the proper format."
    if not reply.content.strip():
        quoted = next((problem.message for problem in reply.problems if problem.code == "quoted"), "")
        return f"{quoted or 'Your reply was empty.'} Answer the user, or call a tool."
    return ""


def _terminated(results: Sequence[ToolResult], required: tuple[str, ...]) -> Ending | None:
    """The end of a turn by a tool that ends it, whatever else the step gave: all its calls have results by then.

    A result that has failed ends no turn, so the deliverable is made of the others that do, in the order of the calls.
    Where the turn must end with some tools, their results end it, and no others do.
    """
    if required:
        last = [result for result in results if result.name in required and not result.is_failure]
    else:
        last = [result for result in results if result.after_execution is AfterExecution.TERMINATE]
    if not last:
        return None
    values = [_without_control(result.structured) for result in last]
    texts = [
        result.text if value is result.structured else json.dumps(value, ensure_ascii=False, default=str)
        for result, value in zip(last, values, strict=True)
    ]
    value = values[0] if len(values) == 1 else values
    return Ending(EndReason.DELIVERED, "\n".join(texts), value, last[0].call_id)


def _without_control(value: Any) -> Any:
    """A value without what it says about its turn, which is not for the user."""
    has_control = isinstance(value, Mapping) and CONTROL in value
    return {name: item for name, item in value.items() if name != CONTROL} if has_control else value


def _delivered(results: Sequence[ToolResult]) -> Ending | None:
    """The end of a turn whose results all go straight to the user. An error always comes back to the model."""
    if all(result.ok and result.delivery == Delivery.USER for result in results):
        return Ending(EndReason.DELIVERED, "\n".join(result.text for result in results))
    return None
