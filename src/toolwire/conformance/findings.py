"""What a service did about a case, and what is wrong with it. Pure."""

import json
from collections.abc import Iterator, Sequence

from msgspec import Struct

from toolwire.conformance.cases import Expect, ProtocolCase
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.outcomes import Status
from toolwire.wire.utp.cards import ToolResultCard, result_card_violations
from toolwire.wire.utp.fields import CALLBACK_FIELDS
from toolwire.wire.utp.messages import ToolCallback, callback_violations
from toolwire.wire.utp.violations import Refusal


class WrittenCard(Struct, frozen=True):
    """A card that a service has written, at which address, and when. `kept` is False for one that was refused."""

    card_id: str
    card: ToolResultCard | Refusal
    data: bytes
    number: int
    kept: bool = True


class ReceivedReport(Struct, frozen=True):
    """A message at the subject of reports, and when it came."""

    message: BusMessage
    callback: ToolCallback | Refusal
    number: int


class ObservedAnswers(Struct, frozen=True):
    """All that a service did. `effects` is what its calls left behind, None where that is not known."""

    written: Sequence[WrittenCard]
    reported: Sequence[ReceivedReport]
    effects: str | None = None


class CheckResult(Struct, frozen=True):
    """How a case ended. `wrong` says what is wrong with it; `skipped` why it was not tried."""

    name: str
    about: str
    paragraph: str
    wrong: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def passed(self) -> bool:
        return not self.wrong and not self.skipped


def judge(case: ProtocolCase, seen: ObservedAnswers) -> CheckResult:
    """What is wrong with what a service did about a case."""
    return CheckResult(case.name, case.about, case.paragraph, tuple(dict.fromkeys(_faults(case, seen))))


def is_answered(case: ProtocolCase, seen: ObservedAnswers) -> bool:
    """Whether there is a result card for the case and a callback to it."""
    cards = {card.card_id for _, card in _cards_of(case, seen)}
    return any(callback.tool_result_card_id in cards for _, callback in _callbacks_of(case, seen))


def _faults(case: ProtocolCase, seen: ObservedAnswers) -> Iterator[str]:
    cards, callbacks = list(_cards_of(case, seen)), list(_callbacks_of(case, seen))
    yield from _effect_faults(case, seen)
    if case.expect is not Expect.RUN and any(card.status is Status.SUCCESS for _, card in cards):
        yield "the call was run: there is a successful result"
    if case.expect is Expect.RUN:
        yield from (
            f"the result is {card.status.value}, not success"
            for _, card in cards[:1]
            if card.status is not Status.SUCCESS
        )
    if case.expect is not Expect.NOT_RUN:
        if not cards:
            yield "no result card was written"
        if not callbacks:
            yield "no callback came"
    if len({card.card_id for _, card in cards}) > 1:
        yield f"there are {len({card.card_id for _, card in cards})} result cards for one call"
    if any(not written.kept for written, _ in cards):
        yield "a result card was written again with other content"
    for reported, callback in callbacks:
        yield from _callback_faults(case, reported, callback, cards)


def _effect_faults(case: ProtocolCase, seen: ObservedAnswers) -> Iterator[str]:
    if seen.effects is None:
        return
    times, most = seen.effects.count(case.nonce), int(case.expect is Expect.RUN)
    if times > most:
        yield f"the call was run {times} times, and should have been {'once' if most else 'never'}"
    elif times < most:
        yield "the call left nothing behind in the file of effects"


def _callback_faults(
    case: ProtocolCase,
    reported: ReceivedReport,
    callback: ToolCallback,
    cards: Sequence[tuple[WrittenCard, ToolResultCard]],
) -> Iterator[str]:
    yield from (f"callback: {one.message}" for one in callback_violations(case.command, callback))
    named = [(written, card) for written, card in cards if card.card_id == callback.tool_result_card_id]
    if not named:
        yield f"a callback points to {callback.tool_result_card_id}, which is not a result card of the call"
    for written, card in named[:1]:
        yield from (f"callback: {one.message}" for one in result_card_violations(callback, card))
        if written.number > reported.number:
            yield "the callback came before its result card was written"
    lower = {name.lower() for name in reported.message.headers}
    payload = json.loads(reported.message.data)
    for field in CALLBACK_FIELDS:
        if field.header and field.name in payload and field.header.lower() not in lower:
            yield f"callback: {field.name} is in the payload and not in the header {field.header}; write both"
        if field.header and field.name not in payload and field.header.lower() in lower:
            yield f"callback: {field.name} is in the header {field.header} and not in the payload; write both"


def _cards_of(case: ProtocolCase, seen: ObservedAnswers) -> Iterator[tuple[WrittenCard, ToolResultCard]]:
    for written in seen.written:
        card = written.card
        if not isinstance(card, Refusal) and card.tool_call_id == case.command.tool_call_id:
            yield written, card


def _callbacks_of(case: ProtocolCase, seen: ObservedAnswers) -> Iterator[tuple[ReceivedReport, ToolCallback]]:
    for reported in seen.reported:
        callback = reported.callback
        if not isinstance(callback, Refusal) and callback.tool_call_id == case.command.tool_call_id:
            yield reported, callback


def protocol_faults(seen: ObservedAnswers, known: Sequence[ProtocolCase]) -> CheckResult:
    """What cannot be told to belong to a case: cards and callbacks that cannot be read, or are of no call."""
    calls = {case.command.tool_call_id for case in known}
    wrong = []
    for written in seen.written:
        card = written.card
        if isinstance(card, Refusal):
            wrong.append(f"card {written.card_id}: {card.violations[0].message}")
        elif card.tool_call_id not in calls:
            wrong.append(f"card {written.card_id} is of an unknown call {card.tool_call_id}")
        elif card.card_id != written.card_id:
            wrong.append(f"card {card.card_id} was written at the address of {written.card_id}")
    for reported in seen.reported:
        callback = reported.callback
        if isinstance(callback, Refusal):
            wrong.append(f"callback: {callback.violations[0].message}")
        elif callback.tool_call_id not in calls:
            wrong.append(f"a callback is of an unknown call {callback.tool_call_id}")
    about = "Every card and callback can be read and belongs to a call"
    return CheckResult("well-formed", about, "callbacks", tuple(dict.fromkeys(wrong)))
