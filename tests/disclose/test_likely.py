"""Which tools a request most likely means, when not all of them can be shown."""

from pathlib import Path

import pytest

from toolwire import Agent, Tool, Toolbox, tool
from toolwire.disclose.likely import likeliest, wish_of
from toolwire.models.recording import RecordingModel, ReplayModel
from toolwire.protocol.chat import Reply, UserMessage
from toolwire.testing import ScriptedModel, call


def named(name: str, description: str, **properties: object) -> Tool:
    return Tool(name, description, {"type": "object", "properties": properties})


FILLERS = [named(f"gadget_{number}", f"Turn the gadget {number} of the shop window.") for number in range(60)]
WANTED = {
    "calculator": named("calculator", "Compute an arithmetic expression.", expression={"type": "string"}),
    "read_file": named("read_file", "Read a file of the workspace.", path={"type": "string"}),
    "sendMail": named("sendMail", "Send a message to somebody.", to={"type": "string"}),
    "fetch": named("fetch", "Fetch a page.", url={"type": "string"}),
    "random": named("random", "Draw random whole numbers."),
    "lamp": named("lamp", "Switch a lamp.", colour={"enum": ["crimson", "teal"]}),
}


@pytest.mark.parametrize(
    ("wish", "name"),
    [
        ("what is 23*19?", "calculator"),
        ("please show me notes.txt", "read_file"),
        ("Reading files is fun", "read_file"),
        ("a mail to ann@example.org", "sendMail"),
        ("what does https://example.org say", "fetch"),
        ("roll a die", "random"),
        ("make it TEAL", "lamp"),
    ],
)
def test_the_tool_that_a_wish_means_is_among_the_few_that_are_shown(wish: str, name: str) -> None:
    tools = [*FILLERS[:30], *WANTED.values(), *FILLERS[30:]]
    assert name in [shown.name for shown in likeliest(tools, wish, 4)]


def test_few_tools_are_all_shown_whatever_is_wished() -> None:
    assert likeliest(FILLERS[:4], "calculate", 4) == tuple(FILLERS[:4])


def test_the_order_of_the_catalogue_is_kept_and_fills_up_what_words_leave_open() -> None:
    tools = [*FILLERS, WANTED["calculator"], WANTED["random"]]
    shown = [one.name for one in likeliest(tools, "a random number, then calculate with it", 3)]
    assert shown == ["gadget_0", "calculator", "random"]


def test_a_follow_up_is_understood_with_the_requests_before_it() -> None:
    said = (UserMessage("draw a random number"), Reply("7"), UserMessage("another one"))
    assert WANTED["random"] in likeliest([*FILLERS, WANTED["random"]], wish_of(said), 2)


@pytest.mark.parametrize("wish", ["", "\ud800\x00", "ß" * 1_000_000, "( " * 100_000, "http://" * 50_000])
def test_any_wish_gets_its_tools(wish: str) -> None:
    assert len(likeliest(FILLERS, wish, 5)) == 5


def test_a_definition_of_any_kind_is_weighed() -> None:
    odd = [Tool("odd", "", {"properties": {"a": 3, "b": {"enum": [None, {}]}}}), Tool("", "x" * 100_000, {})]
    assert len(likeliest([*odd, *FILLERS], "odd", 1)) == 1


async def test_a_model_that_can_be_shown_few_tools_is_offered_the_likeliest_and_may_call_only_those() -> None:
    @tool
    def weather(city: str) -> str:
        """Say how the weather is in a city."""
        return f"sunny in {city}"

    model = ScriptedModel(call("weather", city="Rome"), call("gadget_3"), "done", most_tools=2)
    gadgets = [tool(lambda: "", name=one.name, description=one.description) for one in FILLERS]
    answer = await Agent(model, Toolbox.of(*gadgets, weather)).ask("How is the weather in Rome?")
    offered = [[one.name for one in request.tools] for request in model.requests]
    assert offered == [["gadget_0", "weather"]] * 3
    first, second = (result for message in answer.turn.messages for result in getattr(message, "results", ()))
    assert (first.ok, second.ok) == (True, False)
    assert "gadget_3" in second.text


async def test_a_recording_is_replayed_with_the_tools_that_the_recorded_model_was_shown(tmp_path: Path) -> None:
    gadgets = Toolbox.of(*(tool(lambda: "", name=one.name, description=one.description) for one in FILLERS))
    recording = RecordingModel(ScriptedModel("Hello.", most_tools=2), tmp_path / "talk.jsonl")
    await Agent(recording, gadgets).ask("Hi")
    await recording.close()
    assert (await Agent(ReplayModel(tmp_path / "talk.jsonl"), gadgets).ask("Hi")).text == "Hello."
