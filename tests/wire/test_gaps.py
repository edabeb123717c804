"""Ways to write a call that were not read: each with its stream, and with what must not stay in the answer."""

import json

import pytest

from toolwire.protocol.chat import Reply, TextDelta
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .adversaries import TEXT, tool

TOOLS = [
    tool("city_time", {"city": TEXT}, ["city"]),
    tool("ping_sensor", {}, []),
    tool("search", {"query": TEXT}, ["query"]),
]
ROME, PING = {"name": "city_time", "arguments": {"city": "Rome"}}, {"name": "ping_sensor", "arguments": {}}
A, B = json.dumps(ROME), json.dumps(PING)
QUOTED = json.dumps(json.dumps({"city": "Rome"}))
KIMI = "<|tool_call_begin|>functions.city_time:0<|tool_call_argument_begin|>"


def read(text: str, reason: str | None = "stop") -> Reply:
    """What the whole text says; a stream of it must say the same and show nothing else."""
    parser = StreamParser(TOOLS, finish_reason=reason)
    shown = [delta.text for letter in text for delta in parser.feed(letter) if isinstance(delta, TextDelta)]
    whole = parse_reply(text, TOOLS, finish_reason=reason)
    assert repr(parser.finish()) == repr(whole)
    assert "".join(whole.content.split()).startswith("".join("".join(shown).split()))
    return whole


def calls(reply: Reply) -> list[dict[str, object]]:
    return [{"name": call.name, "arguments": call.arguments} for call in reply.calls if not call.fault]


@pytest.mark.parametrize(
    "text",
    [
        f"```\nfunctools[{A}]\n```",
        f"```json\nfunctools[{A}]\n```",
        f"```\n[TOOL_CALLS][{A}]\n```",
        '```\nAction: city_time\nAction Input: {"city": "Rome"}\n```',
        f"{KIMI}{QUOTED}<|tool_call_end|>",
        f"<|tool_calls_section_begin|>{KIMI}{QUOTED}<|tool_call_end|><|tool_calls_section_end|>",
        '{"name": "city_time<|channel|>commentary", "arguments": {"city": "Rome"}}',
        '<|channel|>commentary to=functions.city_time<|channel|>commentary<|message|>{"city": "Rome"}<|call|>',
        'Thought 1: Hm.\nAction 1: city_time\nAction Input 1: {"city": "Rome"}\nObservation 1: noon',
        "Thought 1: Hm.\nAction 1: city_time[Rome]\nObservation 1: noon\nThought 2: Well.\nAction 2: search[x]",
        f"<tool_call>{A}</ tool_call>",
        f"<tool_call>{A}< /tool_call>",
        f"<tool_call>{A}</tool_call >",
        f"{A}\n</tool_call>",
        f"{A}</ tool_call>",
    ],
)
def test_B6_a_call_in_a_form_that_was_not_read(text: str) -> None:
    reply = read(text)

    assert (calls(reply), reply.content) == ([ROME], "")


@pytest.mark.parametrize(
    "text",
    [
        f'{{"tool_call": {A}{B}}}',
        f'{{"tool_calls": {A}\n{B}}}',
        f'{{"tool_call": [{A}, {B}]}}',
        f"<tool_call>{A}{B}</tool_call>",
        '<tool_call>city_time\n{"city": "Rome"}ping_sensor\n{}</tool_call>',
    ],
)
def test_B6_a_wrapper_around_two_glued_calls(text: str) -> None:
    reply = read(text)

    assert (calls(reply), reply.content) == ([ROME, PING], "")


NOTHING = [
    "None",
    "none.",
    "N/A",
    "`None`",
    "no action",
    "No action needed",
    "Nothing",
    "None\nAction Input: None",
    "-",
]


@pytest.mark.parametrize("nothing", NOTHING)
def test_B6_an_action_that_is_none_leaves_only_the_answer(nothing: str) -> None:
    reply = read(f"Thought: I know it.\nAction: {nothing}\nFinal Answer: It is 5.")

    assert (reply.calls, reply.content.strip(), reply.problems) == ((), "It is 5.", ())


CUTS = [
    "<tool_ca", "<function=ci", '<invoke name="ci', "<city_ti", "<city_time", "<city_time>", "<city_time><ci",
    '<tool_call id="', "<tool_use><name>city", "<tool>city_ti", "[TOOL_C", "Action: city_time\nAction Inp",
    f"<tool_call>{A}</tool_call>\n<tool",
]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS)
def test_B6_a_tag_cut_by_length_is_reported(cut: str) -> None:
    reply = read(f"Let me look.\n{cut}", "length")

    assert "truncated" in {problem.code for problem in reply.problems}
    assert "city_ti" not in reply.content


TAG = "<city_time><city>Rome</city></city_time>"


@pytest.mark.parametrize(
    "text",
    [
        f">> <tool_call>\n{A}\n</tool_call>",
        f">> {TAG}", f">\t{TAG}", f"- > {TAG}", f"1. >> {TAG}", f"> > {TAG}\n> said the page.", f"“{TAG}”", f"'{TAG}'",
        f'"{TAG}"', f"„{TAG}“", f"« {TAG} »", f"({TAG})", f"~~~\n{TAG}\n~~~", f"~~~xml\n{TAG}", f"<!-- {TAG} -->",
        f"<pre>{TAG}</pre>", f'<pre class="x">\n{TAG}\n</pre>', f"<code>{TAG}</code>",
        f"<blockquote>{TAG}</blockquote>",
        f"````\n```\n{TAG}\n```\n````", f"| call | {TAG} |", f"The page says “then {TAG} follows”.", f"<!-- {TAG}",
        f"It has\n\n    {TAG}\n\nin it.", f"<example>{TAG}</example>", f"<![CDATA[{TAG}]]>", f'"""\n{TAG}\n"""',
    ],
)  # fmt: skip
def test_B7_a_call_that_is_quoted_stays_text(text: str) -> None:
    reply = read(text)

    assert (reply.calls, reply.content) == ((), text)


@pytest.mark.parametrize("text", [TAG, f"I look it up.\n{TAG}", f"  {TAG}", f"Rome's time, one moment:\n\n{TAG}\n"])
def test_the_same_call_without_quotation_is_made(text: str) -> None:
    assert calls(read(text)) == [ROME]
