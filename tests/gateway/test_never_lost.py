"""Nothing that a model said vanishes on its way: nearly right calls are repaired, all others stay visible."""

import json

import pytest

from tests.gateway.clients import KINDS, Kind
from tests.gateway.stand import NAME, Stand
from tests.gateway.test_passing import KITCHEN, each_api, whole_and_streamed, will
from tests.models.provider import Provider, Scripted, says
from tests.wire.leaks import all_calls, marked_calls
from toolwire import Agent, tool
from toolwire.models.opening import open_model
from toolwire.protocol.events import Event

NEARLY = ["Read_Temperature", "read-temperature", "READ_TEMPERATURE"]
ROOM = '{"room": "kitchen"}'


def in_room(form: str, name: str) -> str:
    """A call of this tool with the arguments that the tests' tool has."""
    return all_calls(name, "room", "kitchen")[form]


FORMS = sorted(all_calls(""))


@each_api
@whole_and_streamed
@pytest.mark.parametrize("name", NEARLY)
async def test_a_leaked_call_with_a_nearly_right_name_is_that_tool(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool, name: str
) -> None:
    gate = await stand.gate()
    for form in ("hermes", "qwen", "bare", "react", "tag per tool"):
        will(upstream, kind, stream, f"{in_room(form, name)}")

        got = await kind.ask(gate, stream=stream)

        assert (got.calls, got.ending, got.text.strip()) == ([KITCHEN], kind.endings["calls"], ""), form
    assert [entry.tally.repaired for entry in gate.log] == [1] * 5


MORE = '{"name": "read_temperature", "arguments": {"room": "kitchen", "description": "Reads it"}}'
WEAKLY_MARKED = {
    "bare": MORE,
    "fence": f"Let me look.\n```json\n{MORE}\n```",
    "list": f"[{MORE}]",
    "parameters": MORE.replace('"arguments"', '"parameters"'),
}


@each_api
@whole_and_streamed
@pytest.mark.parametrize("form", WEAKLY_MARKED)
async def test_a_leaked_call_with_a_parameter_too_many_is_a_call(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool, form: str
) -> None:
    """A model gives the description of a command that another client's tool of that name asks for."""
    will(upstream, kind, stream, WEAKLY_MARKED[form])

    got = await kind.ask(await stand.gate(), stream=stream)

    assert got.calls == [(NAME, {"room": "kitchen", "description": "Reads it"})]
    assert (got.text.strip(), got.ending) == ("Let me look." if form == "fence" else "", kind.endings["calls"])


@each_api
@whole_and_streamed
async def test_json_without_what_the_tool_needs_stays_text(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    text = '{"name": "read_temperature", "arguments": {"description": "Reads it"}}'
    will(upstream, kind, stream, text)

    got = await kind.ask(await stand.gate(), stream=stream)

    assert (got.text, got.calls, got.ending) == (text, [], kind.endings["stop"])


@each_api
@whole_and_streamed
async def test_a_native_call_with_a_nearly_right_name_is_that_tool(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    gate = await stand.gate()
    for name in NEARLY:
        will(upstream, kind, stream, "", [("call_1", name, ROOM)], "calls")

        got = await kind.ask(gate, stream=stream)

        assert (got.calls, got.ids, got.ending) == ([KITCHEN], ["call_1"], kind.endings["calls"])
    assert [entry.tally.repaired for entry in gate.log] == [1] * len(NEARLY)


@each_api
@whole_and_streamed
async def test_a_leaked_call_of_an_unknown_tool_stays_visible(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    gate = await stand.gate()
    for form in FORMS:
        text = in_room(form, "open_window")
        will(upstream, kind, stream, text)

        got = await kind.ask(gate, stream=stream)

        assert (got.calls, got.ending) == ([], kind.endings["stop"]), form
        assert got.text.strip() in text, form
        assert "open_window" in got.text, form


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "ollama"])
@whole_and_streamed
async def test_an_unknown_call_stays_visible_where_the_answer_is_translated(
    stand: Stand, upstream: Provider, dialect: str, stream: bool
) -> None:
    gate = await stand.gate(dialect)
    text = in_room("hermes", "open_window")
    for kind in KINDS:
        if kind.name == dialect:
            continue
        upstream.will(_upstream_says(dialect, text))

        got = await kind.ask(gate, stream=stream)

        assert (got.text.strip(), got.calls, got.ending) == (text, [], kind.endings["stop"]), kind.name


def _upstream_says(dialect: str, text: str) -> Scripted:
    if dialect == "ollama":
        return says({"message": {"role": "assistant", "content": text}, "done": True, "done_reason": "stop"})
    return next(kind for kind in KINDS if kind.name == dialect).says(text)


# A whole message of Anthropic's has its input as an object, which nothing can follow.
WRITTEN = [(kind, stream) for kind in KINDS for stream in (False, True) if stream or kind.name != "anthropic"]


@pytest.mark.parametrize(("kind", "stream"), WRITTEN, ids=lambda one: getattr(one, "name", str(one)))
@pytest.mark.parametrize("tail", ["<|im_end|>", "</s>", "\n</tool_call>", "\n```", " Done."])
async def test_a_native_call_with_a_tail_behind_its_arguments_reaches_the_client(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool, tail: str
) -> None:
    gate = await stand.gate()
    will(upstream, kind, stream, "", [("call_1", NAME, ROOM + tail)], "calls")

    got = await kind.ask(gate, stream=stream)

    assert (got.calls, got.ids, got.ending) == ([KITCHEN], ["call_1"], kind.endings["calls"])
    assert [entry.tally.repaired for entry in gate.log] == [1]


@whole_and_streamed
@pytest.mark.parametrize("form", sorted(marked_calls("")))
async def test_an_agent_runs_a_nearly_right_call_and_is_told_of_an_unknown_one(
    upstream: Provider, stream: bool, form: str
) -> None:
    ran: list[str] = []

    @tool
    def read_temperature(room: str) -> str:
        """Read the temperature of a room."""
        ran.append(room)
        return "21"

    chat = KINDS[0]
    texts = [in_room(form, "open_window"), in_room(form, "Read-Temperature"), "It is 21."]
    upstream.will(*(chat.streams([text[:9], text[9:]]) if stream else chat.says(text) for text in texts))
    watched: list[Event] = []
    model = open_model("openai-compatible:m", base_url=f"{upstream.url}/v1")
    async with Agent(model, tools=[read_temperature]) as agent:
        done = await agent.ask("How warm?", on_event=watched.append if stream else None)

    assert (ran, done.text) == (["kitchen"], "It is 21.")
    assert "open_window" in json.dumps(upstream.bodies[1]["messages"][-1])
