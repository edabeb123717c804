"""Texts made to be slow to read: each generator gives as many characters of one as are asked for."""

from collections.abc import Callable
from typing import Any

Generator = Callable[[int], str]

CALL = '{"name": "city_time", "arguments": {"city": "Rome"}}'
OPEN = '<tool_call>{"name": "city_time", "arguments": {"city": '
TEXT: dict[str, Any] = {"type": "string"}


def tool(name: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [
    tool("city_time", {"city": TEXT}, ["city"]),
    tool("put_config", {"key": TEXT, "value": {"type": "object"}}, ["key", "value"]),
    tool("ping_sensor", {}, []),
]

REPEATED = [
    "<tool_call>", "<tool_call>\n", "</tool_call>", "<", "< ", "{", "\n{", '\n{"a', "[", "\n[", "\n[{", '"', "\\",
    "```", "```\n", "```json\n{", "`<tool_call>", "<think>", "</think>", "<think>a</think>", "<think><tool_call>",
    "<function=city_time>", "<function=city_time><parameter=city>", '<invoke name="city_time">', '<invoke name="',
    '<｜DSML｜invoke name="city_time">', "<|tool_call_begin|>", "<|channel|>", "]<]minimax[>[", "<|tool_call:begin|>",
    "<|tool_call_begin|>city_time:0<|tool_call_argument_begin|>", '<|open|>call tool="city_time"<|sep|>',
    "<|start|>assistant<|channel|>commentary to=functions.city_time<|message|>{", "Action: city_time\n",
    "\nAction: city_time\nAction Input: x", "\nThought: x", "\nObservation:", "✿FUNCTION✿: city_time\n",
    "\ncity_time\n", "\ncity_time(", "\n[city_time(", "[TOOL_CALLS]", "[TOOL_CALLS]city_time[ARGS]{", "functools[",
    "<city_time>", "<ping_sensor/>", "\n", " ", " \n", "The quick brown fox. ", '<div class="a">x</div>\n', ">>>",
    ">>>city_time\n", f"<tool_call>{CALL}</tool_call>", f"{CALL}\n", '<tool_call>{"name": "nope", "arguments": {}}',
    'x {"name": ', 'x {"name": "city_time", "arguments": {"city": "', '<tool_call a="', "<|im_end|>", "</s>",
    "<answer>", "<response></response>", "\ud800", "\0", '<|tool_call>call:city_time{city:<|"|>',
    "<tool>city_time</tool>", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>city_time\n```json\n",
    "<|recipient|>city_time\n<|content|>", "I will use the ", "<tool_use><name>", "[THINK]", "<|message_model|>",
    "“", "> ", ">> <tool_call>", "~~~\n", "````\n", "<!-- ", "<pre>", "<code>x</code>", f"“{CALL}” ", f"| {CALL} |\n",
    f"> <tool_call>{CALL}</tool_call>\n", f"For example, one would:\n<tool_call>{CALL}</tool_call>\nso it is.\n",
    f"Never run this:\n{CALL}\n", f"- {CALL}\n", f"    {CALL}\n", "Action: None\n", 'x {"tool_call": {',
]  # fmt: skip

OPENED = {
    "parameters": ("<tool_call><function=city_time>", "<parameter=city>"),
    "false ends": ("<tool_call><function=city_time><parameter=city>", "a</parameter>x"),
    "pairs of tags": ("<tool_call><function=city_time>", "<parameter=city>x</parameter>y"),
    "nested elements": (']<]minimax[>[<invoke name="put_config">', "]<]minimax[>[<value>"),
    "arguments": ('<|open|>call tool="city_time"<|sep|>', '<|open|>argument key="a"<|sep|>x<|close|>argument<|sep|>'),
    "calls in a list": ("[", 'city_time(city="a"), '),
    "keys": ("<tool_call>city_time", "<arg_key>city</arg_key><arg_value>"),
    "keys and values": ("<tool_call>city_time", "<arg_key>city</arg_key><arg_value>a</arg_value>"),
    "tool tag": ("<city_time>", "<city>"),
    "children": ("<tool_call>", "<name>x</name>"),
    "open children": ("<tool_call>", "<a>"),
    "numbers": (OPEN + "[", "1,"),
    "strings": (OPEN + "[", '"a",'),
    "deep objects": ('<tool_call>{"name": "put_config", "arguments": ', '{"a":'),
    "deep lists": (OPEN, "["),
    "escapes": (OPEN + '"', "\\n"),
    "false escapes": (OPEN + '"', "\\d"),
    "inner quotes": (OPEN + '"', 'a" b '),
    "digits": (OPEN, "9"),
    "single quotes": ("<tool_call>{'name': 'city_time', 'arguments': {'city': '", "it''s "),
    "comments": ("<tool_call>{", "/* */"),
    "line comments": ("<tool_call>{", "// x\n"),
    "commas": ("<tool_call>{", ","),
    "smart quotes": ("<tool_call>{“name”: “", "a”b"),
    "character data": ('<function name="city_time"><param name="city">', "<![CDATA["),
    "gemma keys": ("<|tool_call>call:city_time{", "a:1,"),
    "requests": ('{"message": "x", "tool_requests": [', '{"tool": "city_time", "input": {"city": "x"}},'),
}


def _filled(opening: str, unit: str) -> Generator:
    return lambda size: (opening + unit * (size // len(unit) + 1))[:size]


GENERATORS: dict[str, Generator] = {
    **{repr(unit)[:60]: _filled("", unit) for unit in REPEATED},
    **{name: _filled(*parts) for name, parts in OPENED.items()},
}
