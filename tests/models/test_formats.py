"""How a model behind an API is told about tools, when its own way is not the one to use."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.agent import Agent
from toolwire.errors import SettingsError
from toolwire.models.http_chat import HttpChat
from toolwire.models.opening import open_model
from toolwire.protocol.chat import Reply
from toolwire.protocol.events import TurnStarted
from toolwire.protocol.tools import Tool
from toolwire.wire.formats.preference import FormatChoice
from toolwire.wire.formats.tally import FormatTally

from .conftest import KEY, QUESTION
from .provider import Provider, says

LEAKED = 'Let me look.\n<tool_call>\n{"name": "read_temperature", "arguments": {"room": "attic"}}\n</tool_call>'


async def asked(provider: Provider, message: dict[str, Any], **more: Any) -> Reply:
    provider.will(says({"choices": [{"message": message, "finish_reason": "stop"}]}))
    request = more.pop("request", QUESTION)
    model = open_model("vllm:some-model", base_url=f"{provider.url}/v1", api_key=KEY, environ={}, **more)
    async with asyncio.timeout(5):
        reply = await model.ask(request)
    await model.close()
    return reply


@pytest.mark.feature("F075", "F083")
async def test_a_profile_may_have_its_model_told_about_tools_in_the_prompt(provider: Provider) -> None:
    reply = await asked(
        provider, {"content": LEAKED}, preference=FormatChoice("hermes"), request=replace(QUESTION, tools_off=False)
    )

    (sent,) = [one.body for one in provider.asked]
    assert "tools" not in sent
    assert "tool_choice" not in sent
    assert '"name":"read_temperature"' in sent["messages"][0]["content"]
    assert [(call.name, call.arguments) for call in reply.calls] == [("read_temperature", {"room": "attic"})]
    assert reply.content == "Let me look."


@pytest.mark.feature("F229")
async def test_a_form_that_has_worked_better_is_used_without_being_asked_for(provider: Provider) -> None:
    counts = [
        FormatTally("vllm:some-model", "openai", calls=50, clean=20),
        FormatTally("vllm:some-model", "hermes", calls=50, clean=49),
    ]

    await asked(provider, {"content": "21 °C."}, tallies=counts)

    assert "tools" not in provider.asked[0].body


async def test_a_tool_whose_name_the_provider_would_refuse_can_be_called(provider: Provider) -> None:
    tool = Tool("house.lamp", "Switch a lamp.")
    call = {"id": "c1", "type": "function", "function": {"name": "house_x2e_lamp", "arguments": "{}"}}

    reply = await asked(
        provider, {"content": None, "tool_calls": [call]}, request=replace(QUESTION, tools=(tool,), conversation="")
    )

    assert provider.asked[0].body["tools"][0]["function"]["name"] == "house_x2e_lamp"
    assert [call.name for call in reply.calls] == ["house.lamp"]
    assert reply.problems == ()


def test_a_model_says_which_formats_it_is_spoken_to_in_and_why() -> None:
    model = open_model("ollama:qwen3:8b", environ={})

    assert isinstance(model, HttpChat)
    assert model.formats.definition_format == "ollama"
    assert (
        model.formats.why
        == "ollama (default) for ollama:qwen3:8b: 0 calls observed, alternatives are considered from 20"
    )


@pytest.mark.parametrize(
    ("name", "preference"),
    [
        ("anthropic:claude", FormatChoice("hermes")),
        ("anthropic:claude", FormatChoice("openai_strict")),
        ("mistral:mistral-large", FormatChoice("openai_strict")),
        ("openai:gpt-4o", FormatChoice("openai_responses")),
    ],
)
def test_a_form_that_the_api_cannot_carry_is_refused_before_anything_is_sent(
    name: str, preference: FormatChoice
) -> None:
    with pytest.raises(SettingsError, match=r"cannot (be sent there|carry)"):
        open_model(name, api_key=KEY, environ={}, preference=preference)


def drawer(**more: Any) -> Tool:
    shape = {"type": "string", "minLength": 1}
    schema = {"type": "object", "properties": {"label": shape, "size": {"type": "integer"}}, "required": ["label"]}
    return Tool("draw", "Draw a box.", schema | more)


async def test_a_profile_may_have_the_provider_hold_its_model_to_the_schema(provider: Provider) -> None:
    """Strict mode wants every property; the null that stands for an optional one is taken out again."""
    written = {"name": "draw", "arguments": '{"label": "a", "size": null}'}
    call = {"id": "c1", "type": "function", "function": written}

    reply = await asked(
        provider,
        {"content": None, "tool_calls": [call]},
        preference=FormatChoice("openai_strict"),
        request=replace(QUESTION, tools=(drawer(),), conversation=""),
    )

    (function,) = [tool["function"] for tool in provider.asked[0].body["tools"]]
    assert function["strict"] is True
    assert function["parameters"]["required"] == ["label", "size"]
    assert function["parameters"]["properties"]["size"] == {"type": ["integer", "null"]}
    assert [call.arguments for call in reply.calls] == [{"label": "a"}]
    assert "invalid_arguments" not in [problem.code for problem in reply.problems]


async def test_whoever_watches_a_turn_hears_what_strict_mode_cannot_say(provider: Provider) -> None:
    provider.will(says({"choices": [{"message": {"content": "Done."}, "finish_reason": "stop"}]}))
    model = open_model(
        "vllm:some-model",
        base_url=f"{provider.url}/v1",
        api_key=KEY,
        environ={},
        preference=FormatChoice("openai_strict"),
    )
    agent = Agent(model, tools=[drawer()])

    async with asyncio.timeout(5):
        events = [event async for event in agent.stream("Draw.")]

    started = events[0]
    assert isinstance(started, TurnStarted)
    assert started.lost == ("draw.label: minLength was left out",)
