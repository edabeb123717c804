"""The embedded model, really asked."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from toolwire import Agent
from toolwire.errors import ModelRefused, ModelUnavailable
from toolwire.models.local import LocalChat, open_local
from toolwire.models.local_engine import LocalEngine
from toolwire.models.weights import weights_of
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import (
    CallDelta,
    Delta,
    Message,
    Reply,
    Request,
    ResultsMessage,
    TextDelta,
    UserMessage,
)
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import Tool
from toolwire.toolbox import standard

PATIENCE_S = 120  # the machine may be busy; a bound, not an expectation
TOOLS = standard()
SUM = UserMessage("What is 23*19?")
FEW = tuple(tool for tool in TOOLS if tool.name in ("calculator", "echo"))
"""For what has nothing to do with the choice among many: the model reads them twenty times faster."""


@pytest.fixture(scope="module")
def model() -> LocalChat:
    opened = open_local()
    assert isinstance(opened, LocalChat)
    return opened


async def ask(model: LocalChat, *messages: Message, tools: tuple[Tool, ...] = TOOLS, **more: Any) -> Reply:
    async with asyncio.timeout(PATIENCE_S):
        return await model.ask(Request(messages, tools, **more))


@pytest.mark.parametrize(
    ("question", "tool", "arguments"),
    [
        ("What is 2 to the power of 10?", "calculator", {"expression": "2^10"}),
        ("Read the file notes.txt", "read", {"path": "notes.txt"}),
        ("Echo hello", "echo", {"message": "hello"}),
        ("Give me a random number between 1 and 6", "random", {"min": 1, "max": 6}),
        ("Set a timer for 5 seconds", "timer", {"seconds": 5}),
    ],
)
async def test_a_plain_question_becomes_the_call_it_asks_for(
    model: LocalChat, question: str, tool: str, arguments: dict[str, Any]
) -> None:
    reply = await ask(model, UserMessage(question))
    assert [(call.name, call.format) for call in reply.calls] == [(tool, "local")]
    assert arguments.items() <= reply.calls[0].arguments.items()
    assert reply.finish_reason == "tool_calls"


async def test_a_call_is_shown_as_it_is_made_and_its_tokens_are_counted_at_no_cost(model: LocalChat) -> None:
    seen: list[Delta] = []
    async with asyncio.timeout(PATIENCE_S):
        reply = await model.ask(Request((SUM,), TOOLS), seen.append)
    assert seen == [CallDelta(0, "calculator", '{"expression": "23*19"}')]
    assert reply.usage.input_tokens > 0
    assert reply.usage.output_tokens > 0
    assert reply.usage.cost_usd == 0.0


def results(value: int) -> tuple[Message, ...]:
    call = ToolCall("calculator", {"expression": "23*19"}, id="c1")
    result = ToolResult("c1", "calculator", Status.SUCCESS, (Text("{…}"),), structured={"result": value})
    return SUM, Reply(calls=(call,)), ResultsMessage((result,))


@pytest.mark.parametrize("value", [437, 5551])
async def test_an_answer_tells_the_result_that_came_and_streams_what_it_says(model: LocalChat, value: int) -> None:
    seen: list[Delta] = []
    async with asyncio.timeout(PATIENCE_S):
        reply = await model.ask(Request(results(value), TOOLS), seen.append)
    assert str(value) in reply.content
    assert not reply.calls
    assert len(seen) > 1
    assert "".join(delta.text for delta in seen if isinstance(delta, TextDelta)).strip() == reply.content


async def test_with_tools_off_the_model_answers_in_words(model: LocalChat) -> None:
    reply = await ask(model, SUM, tools_off=True, max_tokens=8)
    assert reply.content
    assert not reply.calls


async def test_a_question_that_needs_no_tool_is_answered_in_words(model: LocalChat) -> None:
    reply = await ask(model, UserMessage("Good morning! How are you?"))
    assert reply.content
    assert not reply.calls


async def test_several_wishes_become_several_calls(model: LocalChat) -> None:
    seen: list[Delta] = []
    async with asyncio.timeout(PATIENCE_S):
        wish = UserMessage("What is 12*7? And read the file notes.txt")
        reply = await model.ask(Request((wish,), TOOLS), seen.append)
    assert [call.name for call in reply.calls] == ["calculator", "read"]
    assert [delta.position for delta in seen if isinstance(delta, CallDelta)] == [0, 1]


async def test_the_plain_model_can_be_asked_too_and_is_held_to_the_same_grammar(model: LocalChat) -> None:
    plain = open_local("smollm2-plain")
    assert (model.name, plain.name) == ("local:smollm2", "local:smollm2-plain")
    async with asyncio.timeout(PATIENCE_S):
        reply = await plain.ask(Request((SUM,), FEW, max_tokens=16))
    assert bool(reply.content) != bool(reply.calls)


async def test_a_second_question_about_the_same_tools_reads_only_what_is_new(model: LocalChat) -> None:
    await ask(model, SUM)
    again = await ask(model, UserMessage("Echo hello"))
    assert again.usage.cached_tokens > again.usage.input_tokens // 2


async def test_more_tools_than_the_model_can_be_shown_are_chosen_by_what_is_asked(model: LocalChat) -> None:
    fillers = [Tool(f"gadget_{n}", "", of()) for n in range(200)]
    async with asyncio.timeout(PATIENCE_S):
        answer = await Agent(model, [*fillers, *TOOLS]).ask("What is 23*19?")
    assert "437" in answer.text


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


async def test_a_call_to_a_tool_that_was_never_seen_fits_its_schema(model: LocalChat) -> None:
    text = {"type": "string"}
    schema = {
        **of("text", "language", text=text, language={"enum": ["French", "Spanish"]}, note={"$ref": "#/$defs/Note"}),
        "$defs": {"Note": {"type": ["string", "null"]}},
    }
    email = Tool("send_email", "Send an email to a person.", of("to", "subject", to=text, subject=text))
    translate = Tool("translate", "Translate text into another language.", schema)
    reply = await ask(model, UserMessage("Translate good morning into French"), tools=(email, translate))
    assert [call.name for call in reply.calls] == ["translate"]
    jsonschema_rs.validate(schema, dict(reply.calls[0].arguments))


async def test_tools_whose_names_begin_alike_are_told_apart(model: LocalChat) -> None:
    path = of("path", path={"type": "string"})
    pair = (Tool("file_delete", "Delete a file", path), Tool("file_read", "Read a file", path))
    reply = await ask(model, UserMessage("Read a file notes.txt"), tools=pair)
    assert [call.name for call in reply.calls] == ["file_read"]


async def test_questions_asked_at_once_are_each_answered(model: LocalChat) -> None:
    first, second = await asyncio.gather(ask(model, SUM, tools=FEW), ask(model, UserMessage("Echo hello"), tools=FEW))
    assert first.calls[0].name == "calculator"
    assert second.calls[0].name == "echo"


async def test_a_canceled_question_stops_and_leaves_the_model_free(model: LocalChat) -> None:
    speaking = asyncio.Event()
    story = Request((UserMessage("Tell me a very long story about a dragon."),), max_tokens=1024)
    task = asyncio.create_task(model.ask(story, lambda _: speaking.set()))
    async with asyncio.timeout(PATIENCE_S):
        await speaking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await ask(model, UserMessage("Hi"), tools=(), max_tokens=4)).content


async def test_an_error_of_the_one_who_shows_the_answer_reaches_the_one_who_asked(model: LocalChat) -> None:
    """The reader of a pipe went away, say: the command ends by it, and the model writes no further."""

    def show(_: Delta) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        async with asyncio.timeout(PATIENCE_S):
            await model.ask(Request((SUM,), FEW), show)

    assert [call.name for call in (await ask(model, SUM, tools=FEW)).calls] == ["calculator"]


async def test_a_history_that_does_not_fit_is_dropped_and_said_so(model: LocalChat) -> None:
    """The long part is the older one, so that what is kept is quickly read."""
    old: list[Message] = [UserMessage("Tell me a story."), Reply("word " * 5_000)]
    new: list[Message] = [UserMessage("Thank you."), Reply("You are welcome.")]
    question = UserMessage("What is the capital of France?")
    reply = await ask(model, *old * 6, *new * 2, question, tools=(), max_tokens=8)
    assert [problem.code for problem in reply.problems] == ["history_dropped"]
    assert reply.problems[0].message == "12 older messages did not fit the model's memory"
    assert reply.content


@pytest.mark.parametrize("text", ["", "\x00\ud800", "<|im_end|>" * 3, "é" + "responsibilities " * 9_000])
async def test_no_question_breaks_the_model(model: LocalChat, text: str) -> None:
    reply = await ask(model, UserMessage(text), tools=FEW, max_tokens=4)
    assert reply.calls or reply.finish_reason in ("stop", "length")


def test_an_unknown_local_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ModelRefused, match="known are smollm2, smollm2-plain"):
        open_local("gpt-9")


async def test_an_adapter_that_is_not_there_is_named(tmp_path: Path) -> None:
    chat = LocalChat(lambda: LocalEngine(weights_of("smollm2"), adapter=tmp_path / "mine.gguf"), "mine")
    with pytest.raises(ModelUnavailable, match=r"mine\.gguf"):
        await ask(chat, SUM)


def ran(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_without_the_extra_the_first_question_says_what_to_install() -> None:
    script = """
import asyncio, sys
sys.modules["xllamacpp"] = None
from toolwire import Agent
from toolwire.errors import ModelRefused
from toolwire.models.local import open_local
from toolwire.protocol.chat import Request, UserMessage
try:
    asyncio.run(open_local().ask(Request((UserMessage("Hi"),))))
except ModelRefused as refused:
    print(refused)
"""
    assert 'pip install "toolwire[local]"' in ran(script).stdout


def test_the_engine_is_silent_and_listens_on_no_port() -> None:
    script = """
import asyncio, os
from pathlib import Path
from toolwire.models.local import open_local
from toolwire.protocol.chat import Request, UserMessage
model = open_local()
asyncio.run(model.ask(Request((UserMessage("Hi"),), max_tokens=2)))
mine = {os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink() and link.exists()}
rows = [row.split() for name in ("tcp", "tcp6") for row in Path("/proc/net", name).read_text().splitlines()[1:]]
print([row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine], model.engine.load_s > 0)
"""
    done = ran(script)
    assert (done.stdout, done.stderr) == ("[] True\n", "")
