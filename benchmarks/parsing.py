"""What reading a reply costs: `python -m benchmarks.parsing`.

Whole and streamed calls beside the floor of their kind. CPU time, best of several rounds.
"""

import json
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from tests.wire.adversaries import tool

from toolwire.wire.replies.reply import StreamParser, parse_reply

TEXT = {"type": "string"}
TOOLS = [tool(f"tool_{number}", {"value": TEXT}, []) for number in range(14)]
TOOLS.append(tool("write", {"path": TEXT, "content": TEXT}, ["path", "content"]))
LINE = 'def area(w: float, h: float) -> float:\n    return w * h  # "square" metres\n\n'
SIZES = (1_000, 10_000, 100_000, 1_000_000)


def code(size: int) -> str:
    return (LINE * (size // len(LINE) + 1))[:size]


def hermes(size: int) -> str:
    call = {"name": "write", "arguments": {"path": "area.py", "content": code(size)}}
    return f"Writing it.\n<tool_call>\n{json.dumps(call)}\n</tool_call>"


def qwen(size: int) -> str:
    parameters = "".join(
        f"<parameter={name}>\n{value}\n</parameter>\n" for name, value in (("path", "area.py"), ("content", code(size)))
    )
    return f"Writing it.\n<tool_call>\n<function=write>\n{parameters}</function>\n</tool_call>"


def floor(text: str) -> Any:
    begin = text.find("<tool_call>") + len("<tool_call>")
    return orjson.loads(text[begin : text.find("</tool_call>", begin)])


class Once:
    """The floor of streaming: every character is looked at once, nothing is kept."""

    def __init__(self) -> None:
        self.depth, self.quoted, self.escaped = 0, False, False

    def feed(self, piece: str) -> None:
        for character in piece:
            if self.escaped:
                self.escaped = False
            elif self.quoted:
                self.escaped, self.quoted = character == "\\", character != '"'
            elif character == '"':
                self.quoted = True
            elif character in "{}":
                self.depth += 1 if character == "{" else -1


def stream(text: str, size: int, tools: list[Any]) -> None:
    parser = StreamParser(tools)
    for at in range(0, len(text), size):
        parser.feed(text[at : at + size])
    parser.finish()


def stream_floor(text: str, size: int) -> None:
    once = Once()
    for at in range(0, len(text), size):
        once.feed(text[at : at + size])


def best_us(work: Callable[[], object], rounds: int, times: int) -> float:
    found = math.inf
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(times):
            work()
        found = min(found, (time.process_time() - began) / times)
    return found * 1e6


def whole_calls() -> None:
    print("whole answer, µs              floor    hermes   x floor       told      qwen   x floor")
    for size in SIZES:
        text, tags, times = hermes(size), qwen(size), max(2, 400_000 // size)
        base = best_us(partial(floor, text), 9, times)
        auto = best_us(partial(parse_reply, text, TOOLS), 9, times)
        told = best_us(partial(parse_reply, text, TOOLS, "text"), 9, times)
        xml = best_us(partial(parse_reply, tags, TOOLS), 9, times)
        print(f"{size:>12}{base:>23.1f}{auto:>10.1f}{auto / base:>10.1f}{told:>11.1f}{xml:>10.1f}{xml / base:>10.1f}")


def streamed_calls() -> None:
    print("\nstreamed in 8-character pieces, ms      floor    hermes   x floor      qwen     prose")
    for size in SIZES[1:]:
        text, tags, prose = hermes(size), qwen(size), ("Words and more words.\n" * (size // 22 + 1))[:size]
        base = best_us(partial(stream_floor, text, 8), 3, 1) / 1e3
        times = [best_us(partial(stream, each, 8, TOOLS), 3, 1) / 1e3 for each in (text, tags, prose)]
        print(f"{size:>12}{base:>33.2f}{times[0]:>10.2f}{times[0] / base:>10.1f}{times[1]:>10.2f}{times[2]:>10.2f}")


if __name__ == "__main__":
    whole_calls()
    streamed_calls()
