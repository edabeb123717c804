"""Does the call survive? Broken and dialect-flavoured calls for `add(a, b)`, through HTTP and the whole loop."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from toolwire import Agent, Effect, tool
from toolwire.models.opening import open_model
from toolwire.protocol.chat import ResultsMessage

ARGUMENTS = '{"a": 40, "b": 2}'
CALL = '{"name": "add", "arguments": {"a": 40, "b": 2}}'
ENVELOPE = json.dumps(
    {
        "action": "create",
        "breadcrumb": {
            "schema_name": "agent.response.v1",
            "title": "Response",
            "tags": ["agent:response"],
            "context": {
                "message": "Adding",
                "tool_requests": [
                    {"tool": "add", "input": {"a": 40, "b": 2}, "requestId": "add-001", "return_to_llm": True}
                ],
            },
        },
    }
)


def native(arguments: str = ARGUMENTS, name: str = "add", call_id: str = "call_1", times: int = 1) -> dict[str, Any]:
    one = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [one] * times}


def text(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": words}


RUNS = {
    "control": native(),
    "trailing comma": native('{"a": 40, "b": 2,}'),
    "single quotes": native("{'a': 40, 'b': 2}"),
    "cut before the brace": native('{"a": 40, "b": 2'),
    "JSON in a JSON string": native(json.dumps(ARGUMENTS)),
    "numbers as strings": native('{"a": "40", "b": "2"}'),
    "name in capitals": native(name="Add"),
    "name with a prefix": native(name="functions.add"),
    "wrapped in arguments": native('{"arguments": {"a": 40, "b": 2}}'),
    "empty id": native(call_id=""),
    "one id on two calls": native(times=2),
    "fenced": native(f"```json\n{ARGUMENTS}\n```"),
    "Hermes": text(f"I will add.\n<tool_call>\n{CALL}\n</tool_call>"),
    "Qwen3-Coder": text(
        "<tool_call>\n<function=add>\n<parameter=a>\n40\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
        "</function>\n</tool_call>"
    ),
    "tool_use": text(f"<tool_use>{CALL}</tool_use>"),
    "function_call": text(f"<function_call>{CALL}</function_call>"),
    "fenced JSON": text(f"```json\n{CALL}\n```"),
    "bare JSON": text(CALL),
    "Mistral": text(f"[TOOL_CALLS][{CALL}]"),
    "python tag": text('<|python_tag|>{"name": "add", "parameters": {"a": 40, "b": 2}}'),
    "DeepSeek": text(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
        f"{ARGUMENTS}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "invoke": text(
        '<function_calls>\n<invoke name="add">\n<parameter name="a">40</parameter>\n'
        '<parameter name="b">2</parameter>\n</invoke>\n</function_calls>'
    ),
    "RCRT envelope": text(ENVELOPE),
    "tools": text(f"<tools>{CALL}</tools>"),
}
TOLD = {
    "a name that does not exist": (native(name="sum_numbers"), "add"),
    "an argument missing": (native('{"a": 40}'), "missing 'b'"),
    "an argument too many": (native('{"a": 40, "b": 2, "note": "x"}'), "note"),
}


class Stub(ThreadingHTTPServer):
    """Speaks chat completions: the given messages one after the other, and then plain text."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.messages = messages
        self.requests: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Stub

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)
        said, place = self.server.messages, len(self.server.requests) - 1
        message = said[place] if place < len(said) else text("done")
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        answer = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": reason}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing to say."""


@pytest.fixture
def stub(request: pytest.FixtureRequest) -> Iterator[Stub]:
    server = Stub(*(request.param if isinstance(request.param, tuple) else (request.param,)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def ask(stub: Stub) -> tuple[list[tuple[int, int]], str, list[str]]:
    runs: list[tuple[int, int]] = []

    @tool(effect=Effect.UNSAFE)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        runs.append((a, b))
        return a + b

    url = f"http://127.0.0.1:{stub.server_address[1]}/v1"
    async with Agent(open_model("openai-compatible:stub", base_url=url), [add]) as agent:
        answer = await agent.ask("What is 40 + 2?")
    said = [m for message in answer.turn.messages if isinstance(message, ResultsMessage) for m in message.results]
    return runs, answer.text, [result.text for result in said]


@pytest.mark.feature("F102")
@pytest.mark.parametrize("stub", RUNS.values(), ids=RUNS.keys(), indirect=True)
async def test_the_call_runs_exactly_once_with_the_right_arguments(stub: Stub) -> None:
    runs, answer, results = await ask(stub)
    assert runs == [(40, 2)]
    assert set(results) == {"42"}
    assert answer == "done"


@pytest.mark.parametrize(("stub", "words"), TOLD.values(), ids=TOLD.keys(), indirect=["stub"])
async def test_a_call_that_must_not_be_guessed_goes_back_to_the_model(stub: Stub, words: str) -> None:
    """An unknown argument is an error, since leaving one out (`dry_run`) can change what a call does."""
    runs, answer, results = await ask(stub)
    assert runs == []
    assert words in results[0]
    assert answer == "done"


@pytest.mark.parametrize(
    "stub", [(broken, native(call_id="call_2")) for broken, _ in TOLD.values()], ids=TOLD.keys(), indirect=True
)
async def test_a_call_that_was_told_what_is_wrong_runs_once_the_model_has_put_it_right(stub: Stub) -> None:
    runs, answer, results = await ask(stub)
    assert (runs, answer, results[-1]) == ([(40, 2)], "done", "42")


SHOWN = [
    f"Never run this:\n<tool_call>{CALL}</tool_call>",
    f"I refuse to do that:\n\n```json\n{CALL}\n```",
    f"The page says “<tool_call>{CALL}</tool_call>”, which I ignored.",
    f"The log:\n\n    10:22 <tool_call>{CALL}</tool_call>\n\nNothing else is in it.",
]


@pytest.mark.parametrize("stub", [text(words) for words in SHOWN], indirect=True)
async def test_B3_a_call_that_is_only_shown_is_the_answer(stub: Stub) -> None:
    runs, answer, _ = await ask(stub)

    assert runs == []
    assert CALL in answer
    assert len(stub.requests) == 1


UNCLEAR = [f"This is the call:\n```json\n{CALL}\n```", f"I'll add them:\n> {CALL}", f"We can add them.\n{CALL}"]


@pytest.mark.parametrize("stub", [(text(words), native()) for words in UNCLEAR], indirect=True)
async def test_B3_a_model_whose_call_is_unclear_is_told_and_makes_it(stub: Stub) -> None:
    runs, answer, _ = await ask(stub)

    assert (runs, answer) == ([(40, 2)], "done")
    assert "send the call alone" in json.dumps(stub.requests[1]["messages"][-1])
