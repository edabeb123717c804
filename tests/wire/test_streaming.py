"""Streams: however a text is cut, the reply is the same, and what is shown on the way is true."""

import json
import random
from typing import Any

import pytest

from toolwire.protocol.chat import CallDelta, Delta, ReasoningDelta, TextDelta
from toolwire.wire.replies.reply import StreamParser, parse_reply
from toolwire.wire.replies.unsent import unsent

from .cases import CASES, LATE_NEWS, streamed, text_of, wrong
from .test_native import ADD

TEXTS = [(case, text) for case in CASES if (text := text_of(case))]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 40, "b": 2}}\n</tool_call>'


def whole(case: dict[str, Any], text: str) -> Any:
    return parse_reply(text, case["tools"], finish_reason=case.get("finish_reason"))


@pytest.mark.threat("T15")
@pytest.mark.feature("F103")
@pytest.mark.parametrize(("case", "text"), TEXTS, ids=[case["id"] for case, _ in TEXTS])
def test_a_text_cut_at_any_one_point_gives_the_same_reply(case: dict[str, Any], text: str) -> None:
    """Forty points of each of four hundred texts: formats have many texts each, and `size=1` below cuts everywhere."""
    points = random.Random(case["id"]).sample(range(len(text)), min(len(text), 40))
    expected = whole(case, text)

    assert all(streamed(case, (text[:at], text[at:])) == expected for at in points)


@pytest.mark.threat("T15")
@pytest.mark.parametrize("size", [1, 3, 8, 50])
def test_a_text_cut_into_even_pieces_gives_the_same_reply_and_all_that_is_shown_is_in_it(size: int) -> None:
    for case, text in TEXTS:
        parser = StreamParser(case["tools"], finish_reason=case.get("finish_reason"))
        shown = [delta for at in range(0, len(text), size) for delta in parser.feed(text[at : at + size])]
        reply = parser.finish()

        assert reply == whole(case, text), case["id"]
        said = _joined(shown, TextDelta)
        assert not wrong(said + unsent(said, reply.content), reply.content, text), case["id"]
        if any(news in text and "<think>" not in text for news in LATE_NEWS):
            continue
        assert _bare(reply.content).startswith(_bare(_joined(shown, TextDelta))), case["id"]
        assert _bare(reply.reasoning).startswith(_bare(_joined(shown, ReasoningDelta)).lstrip("*")), case["id"]
        named = [delta.name for delta in shown if isinstance(delta, CallDelta) and delta.name]
        assert named[: len(reply.calls)] == [call.name for call in reply.calls][: len(named)], case["id"]


def _joined(shown: list[Delta], kind: type[TextDelta] | type[ReasoningDelta]) -> str:
    return "".join(delta.text for delta in shown if isinstance(delta, kind))


def _bare(text: str) -> str:
    return "".join(text.split())


def feed(parser: StreamParser, *pieces: str) -> list[Delta]:
    return [delta for piece in pieces for delta in parser.feed(piece)]


def test_calls_in_the_text_and_beside_it_are_shown_at_places_of_their_own() -> None:
    """A client that joins arguments by position must never join those of two calls."""
    parser = StreamParser(tools=[ADD])
    native = [{"index": 0, "id": "c", "function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}}]
    deltas: list[dict[str, Any]] = [{"content": CALL}, {"tool_calls": native}, {"content": CALL}, {"content": "."}]

    shown = [delta for one in deltas for delta in parser.feed({"choices": [{"delta": one}]})]

    calls = [delta for delta in shown if isinstance(delta, CallDelta)]
    assert [(delta.position, delta.name) for delta in calls if delta.name] == [(0, "add"), (1, "add"), (2, "add")]
    assert [json.loads(_arguments(calls, at))["a"] for at in range(3)] == [40, 1, 40]


def _arguments(calls: list[CallDelta], position: int) -> str:
    return "".join(delta.arguments for delta in calls if delta.position == position)


def test_text_is_shown_at_once_when_it_cannot_be_part_of_a_call() -> None:
    parser = StreamParser(tools=[ADD])

    assert feed(parser, "Adding ") == [TextDelta("Adding ")]
    assert feed(parser, "now <") == [TextDelta("now ")]
    assert feed(parser, "b> it") == [TextDelta("<b> it")]


def test_the_beginning_of_a_marker_is_held_until_it_is_none() -> None:
    parser = StreamParser(tools=[ADD])

    assert feed(parser, "a <tool_ca") == [TextDelta("a ")]
    assert feed(parser, "lm box") == [TextDelta("<tool_calm box")]


def test_arguments_are_shown_while_they_are_written() -> None:
    parser = StreamParser(tools=[ADD])
    feed(parser, '<tool_call>\n{"name": "add", "argu')

    assert feed(parser, 'ments": {"a": 4') == [CallDelta(0, "add"), CallDelta(0, "", '{"a": 4')]
    assert feed(parser, '0, "b": 2}') == [CallDelta(0, "", '0, "b": 2}')]


def test_text_behind_a_call_is_held_until_all_of_it_can_be_judged() -> None:
    parser = StreamParser(tools=[ADD])
    feed(parser, CALL)

    assert feed(parser, " I'll tell you the sum.") == []
    reply = parser.finish()
    assert (len(reply.calls), reply.content) == (1, "I'll tell you the sum.")


def test_reasoning_is_shown_while_it_is_written() -> None:
    parser = StreamParser(tools=[ADD])

    assert feed(parser, "<think>", "Forty ", "and two</thi") == [ReasoningDelta("Forty "), ReasoningDelta("and two")]
    assert feed(parser, "nk>Hm") == [TextDelta("Hm")]


def test_a_code_answer_is_shown_line_by_line() -> None:
    parser = StreamParser(tools=[ADD])
    shown = feed(parser, "```python\n", "total = 0\n", "for x in y:\n    total += x\n")

    assert "total += x" in _joined(shown, TextDelta)


@pytest.mark.parametrize("size", [1, 4])
def test_a_long_honest_answer_never_shows_its_markup(size: int) -> None:
    text = "Adding up.\n" + f"{CALL}\n" * 300
    parser = StreamParser(tools=[ADD])
    shown = [delta for at in range(0, len(text), size) for delta in parser.feed(text[at : at + size])]

    assert _joined(shown, TextDelta).strip() == "Adding up."
    assert len(parser.finish().calls) == 300


NOTE = {"type": "object", "properties": {"text": {"type": "string"}, "size": {"type": "integer"}}}
NOTES = [{"type": "function", "function": {"name": "note", "parameters": NOTE}}]
IN_TAGS = [
    "<tool_call>\n<function=note>\n<parameter=text>\n{}\n</parameter>\n<parameter=size>\n 7\n</parameter></function>\n",
    '<invoke name="note"><parameter name="text">{}</parameter><parameter name="size">7</parameter></invoke>',
    '<minimax:tool_call><invoke name="note"><parameter name="text">{}</parameter>\n<parameter name="size">7</parameter>'
    "</invoke>",
    "<tool_call>note\n<arg_key>text</arg_key>\n<arg_value>{}</arg_value>\n<arg_key>size</arg_key><arg_value>7</arg_value>"
    "\n</tool_call>",
]
ODD_TEXTS = [
    'Two\n\nlines "and" a tab\t',
    "a < b </p> <param",
    "</param",
    "\\ é 🦊 \r\n",
    "<b>x</b>\r",
    "x </parameter> y",
]


@pytest.mark.parametrize("size", [1, 5, 64])
@pytest.mark.parametrize("text", ["", "plain", *ODD_TEXTS])
@pytest.mark.parametrize("form", IN_TAGS)
def test_arguments_in_tags_are_shown_as_the_json_that_the_call_will_have(form: str, text: str, size: int) -> None:
    """Whatever a value holds: what is shown is never taken back, and behind the call nothing of it is missing."""
    written = form.replace("{}", text) + '\n<tool_call>\n{"name": "note", "arguments": {"size": 8}}\n</tool_call>'
    parser = StreamParser(NOTES)
    shown = [delta for at in range(0, len(written), size) for delta in parser.feed(written[at : at + size])]
    calls = [delta for delta in shown if isinstance(delta, CallDelta)]
    call, _ = parser.finish().calls

    assert json.loads("".join(delta.arguments for delta in calls if delta.position == 0)) == call.arguments
    assert [delta.name for delta in calls if delta.name] == ["note", "note"]


def test_a_text_parameter_is_shown_while_it_is_written() -> None:
    parser = StreamParser(NOTES)
    feed(parser, "<tool_call>\n<function=note>\n<parameter=text>\nOne")

    assert feed(parser, " two", ' "three"') == [CallDelta(0, "", " two"), CallDelta(0, "", ' \\"three\\"')]


@pytest.mark.parametrize("value", ["half \ud800 a pair", "\udfff", "9" * 40])
def test_a_parameter_that_is_hard_to_write_is_streamed_like_any_other(value: str) -> None:
    text = f"<tool_call>\n<function=note>\n<parameter=text>\n{value}\n</parameter>\n</function>\n</tool_call>"
    properties = {"text": {"type": "string"}}
    note = {
        "type": "function",
        "function": {"name": "note", "parameters": {"type": "object", "properties": properties}},
    }
    parser = StreamParser([note])
    shown = [delta for letter in text for delta in parser.feed(letter) if isinstance(delta, CallDelta)]
    reply = parser.finish()
    assert repr(reply) == repr(parse_reply(text, [note]))
    assert reply.calls[0].arguments == {"text": value}
    assert value in "".join(delta.arguments for delta in shown)


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_a_stream_may_learn_only_at_its_end_why_it_ended(reason: str) -> None:
    for case, text in TEXTS:
        parser = StreamParser(case["tools"])
        feed(parser, text[:9], text[9:])

        assert parser.finish(finish_reason=reason) == parse_reply(text, case["tools"], finish_reason=reason), case["id"]


def test_the_reason_at_the_end_counts_for_more_than_an_earlier_one() -> None:
    parser = StreamParser([ADD], finish_reason="stop")
    feed(parser, '<tool_call>{"name": "add", "arguments": {"a": 40, ')

    assert parser.finish(finish_reason="length").finish_reason == "length"
    assert parser.finish().finish_reason == "length"
