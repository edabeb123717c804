"""Where a text ends in the middle of things, or a key stands twice: what is called, and what is only reported."""

import pytest

from toolwire.protocol.chat import Reply, TextDelta
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .adversaries import TEXT, tool

TOOLS = [
    tool("city_time", {"city": TEXT, "zone": TEXT}, ["city"]),
    tool("ping_sensor", {}, []),
]
TOKEN = "]<]minimax[>["
M3 = f'{TOKEN}<tool_call>\n{TOKEN}<invoke name="city_time">{TOKEN}<city>Pula{TOKEN}</city>'
CALL = '{"name": "city_time", "arguments": {"city": "Pula"}}'


def read(text: str) -> tuple[list[tuple[str, object]], set[str], str]:
    """What the whole text says, and a stream of its characters too."""
    parser = StreamParser(TOOLS)
    for character in text:
        parser.feed(character)
    whole = _said(parse_reply(text, TOOLS))
    assert _said(parser.finish()) == whole
    return whole


def _said(reply: Reply) -> tuple[list[tuple[str, object]], set[str], str]:
    calls: list[tuple[str, object]] = [(call.name, call.arguments) for call in reply.calls]
    return calls, {problem.code for problem in reply.problems}, reply.content


@pytest.mark.parametrize("rest", ["", "\n", f"\n{TOKEN}</", f"{TOKEN}</invo", f"{TOKEN}</invoke>"])
def test_a_call_in_nested_tags_counts_without_its_end_once_its_parameters_are_closed(rest: str) -> None:
    assert read(M3 + rest) == ([("city_time", {"city": "Pula"})], set(), "")


@pytest.mark.parametrize(
    "rest", ["]<", TOKEN, f"{TOKEN}<", f"{TOKEN}<zone", f"{TOKEN}<zone>C", f"{TOKEN}<zone>C{TOKEN}<"]
)
def test_a_call_in_nested_tags_is_cut_off_where_another_parameter_may_begin(rest: str) -> None:
    assert read(M3 + rest) == ([], {"truncated"}, "")


@pytest.mark.parametrize("name", ["city_time", "ping_sensor"])
@pytest.mark.parametrize("rest", ["<", "<too", "<tool_sep", "<tool_sep>\n<arg_k"])
def test_a_name_whose_arguments_may_be_about_to_come_calls_nothing(name: str, rest: str) -> None:
    assert read(f"<tool_calls>\n<tool_call>{name}{rest}") == ([], {"truncated"}, "")


@pytest.mark.parametrize("fragment", ["{", '{"na', '{"name": "ping_sens', '{"name": "nope", "argu', '{"id": 7, "na'])
@pytest.mark.parametrize("between", ["; ", "\n", ""])
def test_half_a_call_behind_a_bare_one_is_reported_and_not_shown(between: str, fragment: str) -> None:
    assert read(CALL + between + fragment) == ([("city_time", {"city": "Pula"})], {"truncated"}, "")


def test_half_an_object_of_data_behind_a_bare_call_stays_text() -> None:
    calls, problems, content = read(CALL + '\n{"degrees": 21, "wi')

    assert (len(calls), problems, content) == (1, set(), '{"degrees": 21, "wi')


@pytest.mark.parametrize("end", ["print(time)\n```", "print(time, pong)\n```", "```", "", "print(ti"])
def test_code_may_name_what_a_tool_gives_and_print_it(end: str) -> None:
    code = 'time = default_api.city_time(city="Pula")\npong = ping_sensor()\n'

    assert read(f"```tool_code\n{code}{end}") == ([("city_time", {"city": "Pula"}), ("ping_sensor", {})], set(), "")


def test_code_that_calls_a_tool_nobody_offered_is_reported() -> None:
    text = '```tool_code\nwhere = fly(to="Pula")\nprint(where)\n```'

    assert read(text) == ([], {"unknown_tool"}, text)


INVOKED = '<atem:function_calls>\n<atem:invoke name="ping_sensor">\n</atem:invoke>\n</atem:function_calls>'


def test_a_message_that_follows_another_without_a_marker_still_has_its_recipient() -> None:
    """What is said to the user is text, whatever it shows."""
    spoken = f" to=self<|message|>Hm.<|eom|> to=user<|message|>Write {INVOKED}<|eom|>"
    text = f"{spoken} to=ping_sensor<|message|>{INVOKED}<|eot|>"
    parser = StreamParser(TOOLS)

    shown = [delta for character in text for delta in parser.feed(character)]

    assert read(text) == ([("ping_sensor", {})], set(), f"Write {INVOKED}")
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == f"Write {INVOKED}"


def test_a_message_that_ends_inside_its_address_is_cut_off() -> None:
    assert read(" to=user<|message|>Hm.<|eom|> to=ping_se") == ([], {"truncated"}, "Hm.")
    assert read(" to=user<|message|>Hm.<|eom|> to you too") == ([], set(), "Hm. to you too")


K3 = '<|open|>argument key="city"<|sep|>{}<|close|>argument<|sep|>'
REPEATED = [
    f"{M3}{TOKEN}<city>Rome{TOKEN}</city>{TOKEN}</invoke>{TOKEN}</tool_call>",
    "<tool_use><name>city_time</name><arguments><city>Pula</city><city>Rome</city></arguments></tool_use>",
    "<tool_use><name>city_time</name><city>Pula</city><city>Rome</city></tool_use>",
    "<city_time><city>Pula</city><city/></city_time>",
    f'<|open|>call tool="city_time"<|sep|>{K3.format("Pula")}{K3.format("Rome")}<|close|>call<|sep|>',
    '<|open|>call tool="city_time"<|sep|><|open|>json<|sep|>{"city": "Pula", "city": "Rome"}<|close|>json<|sep|>'
    "<|close|>call<|sep|>",
]


@pytest.mark.parametrize("text", REPEATED)
def test_a_call_in_which_an_element_stands_twice_is_answered_and_never_run(text: str) -> None:
    [call] = parse_reply(text, TOOLS).calls

    assert "'city' stands twice" in call.fault
