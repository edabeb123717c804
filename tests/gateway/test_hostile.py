"""Answers of which any part may be anything: whatever an upstream sends, the gateway reads it or refuses it."""

import contextlib
import copy
import json
import random
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.gateway.clients import KINDS, Kind
from tests.gateway.stand import NAME, ROOM
from tests.gateway.test_passing import LEAKED, NATIVE, cut
from toolwire.gateway.apis import CHAT, MESSAGES, SPOKEN
from toolwire.gateway.asked import ToolLists, read_asked
from toolwire.gateway.calls import Ids, Tally
from toolwire.gateway.faults import Fault, Rejected, error_body, of_answer, of_error_in_answer
from toolwire.gateway.translate import AnswerHead, TranslatedStream, decode_chat_request, left_out, writer_for
from toolwire.models.failures import ProviderSite
from toolwire.models.payloads import EventData
from toolwire.wire.encode.tool_names import NameMap

ROUNDS = 300
JUNK: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, "", "x", "\ud800", "\x00", [], [[]], {}, {"type": 5}, [None], {"id": []},
    {"function": 7}, [{"type": "text"}], "<tool_call>", '{"name":', {"error": None}, "response.completed", 10**400,
]  # fmt: skip
TOOLS = [{"type": "function", "name": NAME, "function": {"name": NAME, "parameters": ROOM}, "input_schema": ROOM}]
PLACE = ProviderSite("the upstream", "http://127.0.0.1:9", secret="sk-own-key")


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value where something else could stand."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from spots(value[key])


def spoiled(value: Any, chance: random.Random) -> Any:
    """The same value with one or two parts replaced, left out or doubled."""
    wrong = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2))):
        places = list(spots(wrong))
        if not places:
            return chance.choice(JUNK)
        holder, key = chance.choice(places)
        match chance.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(holder[key])
            case _:
                holder[key] = copy.deepcopy(chance.choice(JUNK))
    return wrong


def ids() -> Ids:
    numbers = count()
    return Ids((), lambda: f"minted{next(numbers)}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_whole_answer_with_anything_in_it_is_repaired_or_left_alone(kind: Kind) -> None:
    chance = random.Random(1)
    for _ in range(ROUNDS):
        answer = spoiled(kind.whole(LEAKED, [NATIVE], kind.endings["stop"]), chance)
        if isinstance(answer, dict):
            assert isinstance(SPOKEN[kind.name].repair(answer, TOOLS, ids(), Tally()), dict)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("tools", [TOOLS, []], ids=["tools", "no tools"])
def test_a_stream_with_anything_in_it_gives_whole_events(kind: Kind, tools: Any) -> None:
    chance = random.Random(2)
    events = kind.events(cut(LEAKED), [NATIVE], kind.endings["stop"])
    for _ in range(ROUNDS):
        stream = SPOKEN[kind.name].stream(tools, ids(), Tally())
        frames: list[bytes] = []
        for event in spoiled(events, chance):
            if isinstance(event, dict):
                frames += stream.feed(json.dumps(event).encode(), event)
        frames += stream.done() if chance.random() < 0.5 else stream.fail(Fault(502, "gone", "It went away."))
        whole(b"".join(frames))


def whole(sent: bytes) -> None:
    assert sent.endswith(b"\n\n")
    for payload in EventData(10**6).feed(sent):
        assert payload == b"[DONE]" or isinstance(json.loads(payload), dict)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(("source", "api"), [(KINDS[0], CHAT), (KINDS[1], MESSAGES)], ids=["chat", "messages"])
def test_a_translated_stream_with_anything_in_it_gives_whole_events(kind: Kind, source: Kind, api: Any) -> None:
    chance = random.Random(3)
    events = source.events(cut(LEAKED), [NATIVE], source.endings["stop"])
    asked = read_asked(b'{"model": "m"}', kind.name, ToolLists())
    for _ in range(ROUNDS // 2):
        writer = writer_for(asked, AnswerHead("1", "m", 1))
        stream = TranslatedStream(writer, NameMap((), {}), api.name, api.enough, ids(), Tally())
        frames = [f for event in spoiled(events, chance) if isinstance(event, dict) for f in stream.feed(b"", event)]
        whole(b"".join([*frames, *stream.done()]))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_request_with_anything_in_it_is_read_or_refused(kind: Kind) -> None:
    chance = random.Random(4)
    message = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}
    entry = {"id": "a", "type": "function", "function": {"name": "b", "arguments": "{}"}}
    item = {"type": "function_call", "call_id": "a", "name": "b", "arguments": "{}"}
    fine = {
        "model": "m", "stream": True, "tools": TOOLS, "tool_choice": {"type": "auto"}, "input": [item],
        "messages": [{"role": "user", "content": "Hello"}, message, {"role": "assistant", "tool_calls": [entry]}],
    }  # fmt: skip
    for _ in range(ROUNDS):
        body = json.dumps(spoiled(fine, chance)).encode()
        with contextlib.suppress(Rejected):
            left_out(decode_chat_request(read_asked(body, kind.name, ToolLists())))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_error_with_anything_in_it_becomes_an_error_of_the_clients_api(kind: Kind) -> None:
    chance = random.Random(5)
    theirs = {"type": "error", "error": {"message": "bad sk-own-key", "type": "x", "code": 429, "param": [{}]}}
    for _ in range(ROUNDS):
        wrong = spoiled(theirs, chance)
        body = json.dumps(wrong).encode()
        faults = [of_answer(PLACE, 418, {}, body, kind.name)]
        faults += [of_error_in_answer(PLACE, wrong, kind.name)] if isinstance(wrong, dict) else []
        for fault in faults:
            said = error_body(fault, kind.name)
            assert isinstance(said["error"]["message"], str)
            assert "sk-own-key" not in json.dumps(said)
