"""Every way in which models are known to write calls into text, through the gateway, whole and in pieces."""

import json
from itertools import count
from typing import Any

import pytest

from tests.gateway.clients import KINDS, Kind
from tests.wire.cases import CASES
from toolwire.gateway.apis import SPOKEN
from toolwire.gateway.calls import Ids, Tally
from toolwire.models.payloads import DONE, EventData
from toolwire.wire.replies.unsent import collapse_space

TEXTS = [case for case in CASES if isinstance(case.get("response"), str) and case["provider"] == "text"]
SEVERAL = 5


def ids() -> Ids:
    numbers = count()
    return Ids((), lambda: f"minted{next(numbers):03}")


def whole(kind: Kind, text: str, tools: Any) -> Any:
    return SPOKEN[kind.name].repair(kind.whole(text, (), kind.endings["stop"]), tools, ids(), Tally())


def streamed(kind: Kind, pieces: list[str], tools: Any) -> Any:
    """What a client that believes every event ends up with."""
    stream = SPOKEN[kind.name].stream(tools, ids(), Tally())
    frames: list[bytes] = []
    for payload in EventData(1_000_000).feed(kind.framed(kind.events(pieces, (), kind.endings["stop"]))):
        frames += stream.done() if payload == DONE else stream.feed(payload, json.loads(payload))
    sent = EventData(1_000_000).feed(b"".join(frames))
    return [json.loads(payload) for payload in sent if payload != DONE]


def calls_and_text(kind: Kind, answer: Any) -> tuple[list[Any], str]:
    """The calls and the text of a whole answer, or of the events of one."""
    match kind.name, answer:
        case "openai", dict():
            message = answer["choices"][0]["message"]
            found = [call["function"] for call in message.get("tool_calls") or []]
            return [(one["name"], json.loads(one["arguments"])) for one in found], message["content"] or ""
        case "openai", list():
            deltas = [choice["delta"] for chunk in answer for choice in chunk["choices"]]
            found = [call["function"] for delta in deltas for call in delta.get("tool_calls") or []]
            text = "".join(delta.get("content") or "" for delta in deltas)
            return [(one["name"], json.loads(one["arguments"])) for one in found], text
        case "anthropic", dict():
            uses = [block for block in answer["content"] if block["type"] == "tool_use"]
            said = [block["text"] for block in answer["content"] if block["type"] == "text"]
            return [(use["name"], use["input"]) for use in uses], "".join(said)
        case "anthropic", list():
            return _blocks(answer)
        case _:
            response = answer[-1]["response"] if isinstance(answer, list) else answer
            items = [item for item in response["output"] if item["type"] == "function_call"]
            said = [item["content"][0]["text"] for item in response["output"] if item["type"] == "message"]
            return [(item["name"], json.loads(item["arguments"])) for item in items], "".join(said)


def _blocks(events: list[Any]) -> tuple[list[Any], str]:
    blocks: dict[int, Any] = {}
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks[event["index"]] = [event["content_block"], ""]
        elif event["type"] == "content_block_delta":
            delta = event["delta"]
            blocks[event["index"]][1] += delta.get("text") or delta.get("partial_json") or ""
    uses = [(block["name"], json.loads(words)) for block, words in blocks.values() if block["type"] == "tool_use"]
    return uses, "".join(words for block, words in blocks.values() if block["type"] == "text")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_known_way_to_leak_a_call_becomes_the_calls_that_were_meant(kind: Kind) -> None:
    wrong = []
    for case in TEXTS:
        calls, _ = calls_and_text(kind, whole(kind, case["response"], case["tools"]))
        if calls != [(call["name"], call["arguments"]) for call in case["expect"]["calls"]]:
            wrong.append(case["id"])
    assert wrong == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_stream_brings_the_same_calls_and_the_same_text_as_a_whole_answer(kind: Kind) -> None:
    """White space may differ: a stream cannot take back what stood before a call."""
    wrong = []
    for case in TEXTS:
        text = case["response"]
        expected, said = calls_and_text(kind, whole(kind, text, case["tools"]))
        pieces = [text[at : at + SEVERAL] for at in range(0, len(text), SEVERAL)]
        calls, shown = calls_and_text(kind, streamed(kind, pieces, case["tools"]))
        if calls != expected or collapse_space(said) not in collapse_space(shown):
            wrong.append(case["id"])
    assert wrong == []
