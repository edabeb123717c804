"""Random calls written in every outbound dialect and read back: all must come back as they went.

Run with `python -m benchmarks.roundtrip [COUNT] [SEED]`; ends with 1 when a call did not survive.
"""

import sys
from random import Random
from time import perf_counter
from typing import Any

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.outbound import CallIds
from toolwire.wire.encode.request import Dialect
from toolwire.wire.encode.tool_names import NameMap
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.replies.reply import parse_reply

COUNT = 100_000
PER_REPLY = 5
SHOWN, SHOWN_CHARS = 2, 400

TOOLS = (
    Tool(
        "note.write",
        "Write a note.",
        {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "size": {"type": "integer"},
                "share": {"type": "number"},
                "loud": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "more": {"type": "object"},
                "label": {"type": ["string", "null"]},
            },
        },
    ),
    Tool("open_thing", "Take anything.", {"type": "object", "properties": {}, "additionalProperties": True}),
    Tool("now", "Tell the time."),
)
_TYPED = {
    "text": "text",
    "size": "integer",
    "share": "number",
    "loud": "boolean",
    "tags": "texts",
    "more": "object",
    "label": "label",
}
_TEXTS = (
    "", "plain words", "5", "true", "null", "None", "{}", "[1]", '"quoted"', "it's", "a\nb", "\n", " x ", "\t", "\r\n",
    "</tool_call>", "<tool_call>", "</parameter>", "\n</parameter>\n", "<function=now>", "</tool_response>", "```json",
    "Ünïcödé 🦊", "C:\\dir\\n", "\\", "\\u0041", "\x00", "\u2028", "<think>", "</think>", "<|im_end|>", "1e5", "-0",
    "&amp;", "{{x}}", "// no", "<|tool_call|>", "[TOOL_CALLS]", "Action: now", "00123", "12.50", "NaN", "a" * 40,
)  # fmt: skip
_NUMBERS = (0, -1, 7, 2**53, -(2**63), 0.5, -1.25, 1e300, 1e-7, 3.0)


def random_text(dice: Random) -> str:
    if dice.random() < 0.5:
        return dice.choice(_TEXTS)
    if dice.random() < 0.5:
        return "".join(dice.choice(_TEXTS) for _ in range(3))
    return "".join(chr(dice.choice((dice.randrange(32, 127), dice.randrange(160, 0xD7FF)))) for _ in range(12))


def random_value(dice: Random, depth: int = 0) -> Any:
    kind = dice.randrange(8 if depth < 3 else 5)
    match kind:
        case 0 | 1:
            return random_text(dice)
        case 2:
            return dice.choice(_NUMBERS)
        case 3:
            return dice.choice((True, False))
        case 4:
            return None
        case 5:
            return [random_value(dice, depth + 1) for _ in range(dice.randrange(4))]
        case _:
            return random_object(dice, depth + 1)


def random_object(dice: Random, depth: int = 0) -> dict[str, Any]:
    return {random_text(dice) or f"k{n}": random_value(dice, depth) for n in range(dice.randrange(4))}


def random_call(dice: Random, number: int) -> ToolCall:
    tool = dice.choice(TOOLS)
    arguments: dict[str, Any] = {}
    if tool is TOOLS[0]:
        chosen = dice.sample(sorted(_TYPED), dice.randrange(len(_TYPED) + 1))
        arguments = {name: _typed(dice, _TYPED[name]) for name in chosen}
    elif tool is TOOLS[1]:
        arguments = random_object(dice)
    return ToolCall(tool.name, arguments, id=f"id{number}", alias=f"al{number}")


def _typed(dice: Random, kind: str) -> Any:
    match kind:
        case "text":
            return random_text(dice)
        case "integer":
            return dice.choice((0, -5, 42, 2**60))
        case "number":
            return dice.choice((0.5, -2.25, 7, 1e30))
        case "boolean":
            return dice.random() < 0.5
        case "texts":
            return [random_text(dice) for _ in range(dice.randrange(4))]
        case "label":
            return None if dice.random() < 0.3 else random_text(dice)
        case _:
            return random_object(dice)


def as_answer(dialect: Dialect, reply: Reply) -> Any:
    """What a provider would answer with to say the very thing that we write into a history."""
    said = dialect.encode_message(reply, CallIds(dialect.id_fits))
    match dialect.name:
        case "openai" | "openai_strict" | "mistral":
            return {"choices": [{"message": said[0], "finish_reason": "tool_calls"}]}
        case "openai_responses":
            items = [item if "type" in item else {"type": "message", **item} for item in said]
            return {"object": "response", "status": "completed", "output": items}
        case "anthropic":
            return {"type": "message", **said[0], "stop_reason": "tool_use"}
        case "gemini":
            return {"candidates": [{"content": said[0], "finishReason": "STOP"}]}
        case "ollama":
            return {"message": said[0], "done": True, "done_reason": "stop"}
        case "cohere":
            return {"message": said[0], "finish_reason": "TOOL_CALL"}
        case "bedrock":
            return {"output": {"message": said[0]}, "stopReason": "tool_use"}
        case _:
            return said[0]["content"]


def read_back(dialect: Dialect, reply: Reply, tools: tuple[Tool, ...] = TOOLS) -> Reply:
    """The reply after a journey over the wire, its names our own again."""
    known = NameMap.of(tools, dialect.wire_name)
    return known.restore(parse_reply(as_answer(dialect, reply), known.tools, finish_reason="stop"))


def survived(before: Reply, after: Reply) -> bool:
    """Whether names, arguments and order are the same, types included."""
    calls = before.calls
    return repr([(call.name, call.arguments) for call in calls]) == repr(
        [(one.name, one.arguments) for one in after.calls]
    )


def main(words: list[str]) -> int:
    count = int(words[0]) if words else COUNT
    seed = int(words[1]) if len(words) > 1 else 0
    return 1 if sum(_measured(name, count, Random(seed)) for name in DIALECTS) else 0


def _measured(name: str, count: int, dice: Random) -> int:
    """How many replies came back changed, after a line about it and the first of them."""
    lost, done, start = [], 0, perf_counter()
    while done < count:
        reply = Reply(calls=tuple(random_call(dice, n) for n in range(1 + dice.randrange(PER_REPLY))))
        after = read_back(DIALECTS[name], reply)
        done += len(reply.calls)
        if not survived(reply, after):
            lost.append((reply, after))
    print(f"{name:17} {done:7} calls, {len(lost):5} replies changed, {perf_counter() - start:6.1f} s")
    for before, after in lost[:SHOWN]:
        print("   sent", str([(one.name, one.arguments) for one in before.calls])[:SHOWN_CHARS])
        print("   read", str([(one.name, one.arguments) for one in after.calls])[:SHOWN_CHARS])
    return len(lost)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
