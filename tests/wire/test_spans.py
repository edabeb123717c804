"""Which part of a text was read as what: nothing is left out, nothing twice, and calls are where they were read."""

from typing import Any

import pytest

from toolwire.wire.replies.reply import parse_reply
from toolwire.wire.text.spans import spans

from .cases import CASES

TEXTS = [case for case in CASES if isinstance(case.get("response"), str)]


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: str(case["id"]))
def test_every_character_of_a_text_is_in_exactly_one_span(case: dict[str, Any]) -> None:
    text = case["response"]
    found = spans(text, case["tools"], cut=case.get("finish_reason") == "length")
    edges = [(span.start, span.end) for span in found]
    assert [start for start, _ in edges] == [0, *(end for _, end in edges[:-1])][: len(edges)]
    assert not text or edges[-1][1] == len(text)


@pytest.mark.parametrize("case", TEXTS, ids=lambda case: str(case["id"]))
def test_there_is_a_span_for_a_call_exactly_where_a_call_was_read(case: dict[str, Any]) -> None:
    reply = parse_reply(case["response"], case["tools"], "text", case.get("finish_reason"))
    found = spans(case["response"], case["tools"], cut=reply.finish_reason == "length")
    assert any(span.kind == "call" for span in found) == bool(reply.calls)


def test_text_reasoning_calls_refusals_and_markers_are_told_apart() -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    text = (
        '<think>Hm.</think>Now.\n<tool_call>{"name": "add", "arguments": {}}</tool_call>'
        '<tool_call>{"name": "nope", "arguments": {}}</tool_call>Done.<|im_end|>'
    )
    assert [(span.kind, text[span.start : span.end][:9]) for span in spans(text, tools)] == [
        ("reasoning", "<think>Hm"), ("text", "Now.\n"), ("call", "<tool_cal"), ("refused", "<tool_cal"),
        ("text", "Done."), ("markup", "<|im_end|"),
    ]  # fmt: skip
