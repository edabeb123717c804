"""A reply with thousands of calls: the first run, and one sentence and one row answer for all the others."""

import functools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.record.conftest import database_server
from toolwire import Agent, Limits, MemoryStore, SqliteStore, tool
from toolwire.protocol.chat import Reply, Request, ResultsMessage
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel
from toolwire.wire.encode.request import encode_conversation
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.replies.reply import StreamParser, parse_reply

MANY = 20_000
Replies = Callable[[int], Reply]


@tool
def mark(number: int) -> str:
    """Make a mark."""
    return "made"


@pytest.fixture(params=["memory", "sqlite", "libsql", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        async with await SqliteStore.at(tmp_path / "home") as opened:
            yield opened
    else:
        with database_server(request.param, tmp_path, request) as on:
            async with await on(tmp_path / "home") as opened:
                yield opened


def entry(number: int) -> dict[str, Any]:
    function = {"name": "mark", "arguments": json.dumps({"number": number})}
    return {"index": number, "id": f"c{number}", "type": "function", "function": function}


def native_whole(many: int) -> Reply:
    message = {"content": None, "tool_calls": [entry(number) for number in range(many)]}
    return parse_reply({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}, [mark], "openai")


def native_stream(many: int) -> Reply:
    parser = StreamParser([mark], "openai")
    for number in range(many):
        parser.feed({"choices": [{"index": 0, "delta": {"tool_calls": [entry(number)]}}]})
    parser.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return parser.finish()


def blocks(many: int) -> Reply:
    content = [{"type": "tool_use", "id": f"t{n}", "name": "mark", "input": {"number": n}} for n in range(many)]
    return parse_reply({"type": "message", "content": content, "stop_reason": "tool_use"}, [mark], "anthropic")


def tagged(number: int) -> str:
    call = json.dumps({"name": "mark", "arguments": {"number": number}})
    return f"<tool_call>{call}</tool_call>\n"


def text_whole(many: int) -> Reply:
    return parse_reply("".join(map(tagged, range(many))), [mark])


def text_stream(many: int) -> Reply:
    parser = StreamParser([mark])
    for number in range(many):
        parser.feed(tagged(number))
    return parser.finish()


SOURCES: dict[str, Replies] = {
    "native": native_whole,
    "native stream": native_stream,
    "anthropic": blocks,
    "text": text_whole,
    "text stream": text_stream,
}


@functools.cache
def parsed(source: str) -> Reply:
    """The same for every store."""
    return SOURCES[source](MANY)


class Watching(ScriptedModel):
    """Remembers the last request."""

    last: Request

    async def ask(self, request: Request, on_delta: Any = None) -> Reply:
        self.last = request
        return await super().ask(request, on_delta)


@pytest.mark.parametrize("source", SOURCES)
async def test_T13_one_sentence_and_one_row_answer_for_all_calls_beyond_the_limit(store: Store, source: str) -> None:
    reply = parsed(source)
    model = Watching(reply, "Done.")

    answer = await Agent(model, [mark], store=store).ask("Mark!")

    cards = await store.calls(turn_id=answer.turn_id, limit=100_000)
    rows = await store.audit_log(limit=100_000)
    [denied] = [row for row in rows if row.event == "denied"]
    [results] = [message for message in model.last.messages if isinstance(message, ResultsMessage)]
    left_out = MANY - 33 if "text" not in source else 4_096 - 33
    assert (len(cards), len(rows)) == (33, 32 * 3 + 1)
    assert (denied.rule, denied.detail) == ("limits", {"left_out": left_out})
    assert [result.ok for result in results.results] == [True] * 32 + [False]
    assert f"This one and {left_out:,} more were left out" in results.results[-1].text
    assert sum(len(str(message)) for message in model.last.messages) < 50_000


async def test_T13_the_next_request_answers_each_call_that_it_shows() -> None:
    for source, dialect in ((native_whole, "openai"), (blocks, "anthropic")):
        model = Watching(source(MANY), "Done.")
        await Agent(model, [mark]).ask("Mark!")

        body = json.dumps(encode_conversation(DIALECTS[dialect], model.last.messages, "", None))
        ids = [f'"{"c" if source is native_whole else "t"}{number}"' for number in range(33)]
        assert [body.count(one) for one in ids] == [2] * 33
        assert (body.count('"mark"'), len(body) < 50_000) == (33, True)


async def test_T13_control_with_a_higher_limit_all_are_answered_one_by_one() -> None:
    model = Watching(native_whole(100), "Done.")

    answer = await Agent(model, [mark], limits=Limits(calls_per_step=1000)).ask("Mark!")

    assert answer.turn.calls == 100


async def test_one_call_beyond_the_limit_is_refused_as_such() -> None:
    store = MemoryStore()

    await Agent(ScriptedModel(native_whole(33), "Done."), [mark], store=store).ask("Mark!")

    [denied] = [row for row in await store.audit_log(limit=1000) if row.event == "denied"]
    assert denied.detail == {}
