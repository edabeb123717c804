"""Asking another model as a tool, against a scripted provider on loopback."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.models.provider import Provider, provider_on_loopback, says
from tests.toolbox.conftest import Call
from toolwire import Agent, Grant, Tier, Tool, tool
from toolwire.define.conformance import report
from toolwire.errors import ToolFailure
from toolwire.models.opening import open_model
from toolwire.protocol.chat import Reply, Request, Usage, UserMessage
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.testing import ScriptedModel
from toolwire.testing import call as calling
from toolwire.toolbox.agents.model_tools import Configured, ModelSpending, ask_model_tool, configure

KEY = "sk-secret-0123456789"
QUESTION = [{"role": "user", "content": "Name a tea."}]
OPENAI = {
    "id": "gen-1",
    "model": "meta/llama-3",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Assam."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}
PRICED = OPENAI | {"usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "cost": 0.00042}}
OLLAMA = {
    "model": "llama3",
    "message": {"role": "assistant", "content": "Assam."},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 9,
    "eval_count": 3,
}
NETWORKED = Grant(Tier.RUN, frozenset({"network"}), confirmed=frozenset("*"))


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with asyncio.timeout(10), provider_on_loopback() as served:
        yield served


def named(name: str, provider: Provider, *models: str) -> Configured:
    match name:
        case "openrouter":
            return configure("openrouter", "meta/llama-3", *models, base_url=f"{provider.url}/api/v1", api_key=KEY)
        case "venice":
            return configure("venice", "meta/llama-3", *models, base_url=f"{provider.url}/api/v1", api_key=KEY)
        case _:
            return configure("ollama_local", "llama3", *models, base_url=provider.url, api_key="")


@pytest.mark.feature("F238")
@pytest.mark.feature("F173")
@pytest.mark.parametrize(
    ("name", "said", "path", "cost"),
    [
        ("openrouter", PRICED, "/api/v1/chat/completions", 0.00042),
        ("venice", OPENAI, "/api/v1/chat/completions", None),
        ("ollama_local", OLLAMA, "/api/chat", 0.0),
    ],
)
async def test_each_of_the_three_names_asks_its_provider_and_gives_the_same_fields(
    call: Call, provider: Provider, name: str, said: Any, path: str, cost: float | None
) -> None:
    provider.will(says(said))

    output = await call(ask_model_tool(name, named(name, provider)), messages=QUESTION)

    assert output == {
        "content": "Assam.",
        "model": said["model"],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        "cost_estimate": cost,
    }
    assert provider.asked[0].path == path


async def test_the_conversation_and_its_settings_reach_the_model(call: Call, provider: Provider) -> None:
    provider.will(says(OPENAI))
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        *QUESTION,
    ]

    tool = ask_model_tool("openrouter", named("openrouter", provider))
    await call(tool, messages=messages, temperature=0.5, max_tokens=100)

    (body,) = provider.bodies
    assert [message["content"] for message in body["messages"]] == ["Be brief.", "Hello.", "Hi.", "Name a tea."]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("meta/llama-3", 0.5, 100)
    assert not body.get("tools")


async def test_one_of_the_configured_models_can_be_chosen_and_no_other(call: Call, provider: Provider) -> None:
    provider.will(says(OPENAI))
    tool = ask_model_tool("openrouter", named("openrouter", provider, "cheap/one"))

    await call(tool, messages=QUESTION, model="cheap/one")
    with pytest.raises(ToolFailure, match="there is meta/llama-3, cheap/one") as failed:
        await call(tool, messages=QUESTION, model="dear/one")

    assert [body["model"] for body in provider.bodies] == ["cheap/one"]
    assert failed.value.code is Code.INVALID_PARAMS


@pytest.mark.feature("F217")
async def test_what_tools_spend_on_models_is_added_up(call: Call, provider: Provider) -> None:
    provider.will(says(PRICED), says(PRICED), says(OPENAI))
    spending = ModelSpending()
    dear = ask_model_tool("openrouter", named("openrouter", provider), spent=spending)
    other = ask_model_tool("venice", named("venice", provider), spent=spending)

    for each in (dear, dear, other):
        await call(each, Context(agent="ada", turn_id="t1"), messages=QUESTION)

    assert spending.by_tool() == {"openrouter": Usage(18, 6, cost_usd=0.00084), "venice": Usage(9, 3, cost_usd=None)}
    assert spending.unpriced() == {"meta/llama-3": 1}
    assert {(one.agent, one.turn_id) for one in spending.spent} == {("ada", "t1")}


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (says({"error": {"message": "bad key"}}, status=401), Code.EXECUTION_FAILED),
        (says({"error": {"message": "no such model"}}, status=404), Code.EXECUTION_FAILED),
        (says({"error": {"message": "odd"}}, status=400), Code.EXECUTION_FAILED),
    ],
)
async def test_a_provider_that_refuses_is_a_failure_without_the_key(
    call: Call, provider: Provider, answer: Any, code: Code
) -> None:
    provider.will(answer)
    with pytest.raises(ToolFailure) as failed:
        await call(ask_model_tool("openrouter", named("openrouter", provider)), messages=QUESTION)

    assert failed.value.code is code
    assert KEY not in str(failed.value)


async def test_a_missing_key_is_said_with_the_variable_to_set(call: Call) -> None:
    def without_variables(name: str, **given: Any) -> Any:
        return open_model(name, environ={}, **given)

    with pytest.raises(ToolFailure, match="set OPENROUTER_API_KEY"):
        await call(
            ask_model_tool("openrouter", configure("openrouter", "m"), open_model=without_variables), messages=QUESTION
        )


async def test_a_conversation_needs_a_question(call: Call, provider: Provider) -> None:
    with pytest.raises(ToolFailure, match="role user"):
        await call(
            ask_model_tool("venice", named("venice", provider)), messages=[{"role": "system", "content": "Be brief."}]
        )
    assert provider.asked == []


@pytest.mark.parametrize(
    "steering",
    [{"base_url": "{evil}"}, {"api_base": "{evil}"}, {"config_id": "other"}, {"api_key": "x"}, {"headers": {}}],
)
async def test_T56_a_call_cannot_choose_the_address_the_key_or_a_configuration(
    provider: Provider, steering: dict[str, Any]
) -> None:
    provider.will(says(OPENAI))
    async with provider_on_loopback() as evil:
        evil.will(says(OPENAI))
        given = {name: evil.url if value == "{evil}" else value for name, value in steering.items()}
        model = ScriptedModel(calling("openrouter", messages=QUESTION, **given), "done")
        async with Agent(
            model, [ask_model_tool("openrouter", named("openrouter", provider))], grant=NETWORKED
        ) as agent:
            answer = await agent.ask("Ask it.")

    assert evil.connections == 0
    assert provider.connections == 0
    assert KEY not in repr(answer)


async def test_T56_a_model_name_that_looks_like_an_address_stays_a_name(call: Call, provider: Provider) -> None:
    async with provider_on_loopback() as evil:
        with pytest.raises(ToolFailure, match="not configured"):
            await call(
                ask_model_tool("openrouter", named("openrouter", provider)), messages=QUESTION, model=f"{evil.url}/v1:m"
            )
        assert evil.connections == 0


async def test_T56_the_control_a_tool_that_takes_an_address_sends_its_key_there() -> None:
    @tool(needs={"network"})
    async def naive(base_url: str) -> str:
        """Ask a model at any address."""
        opened = open_model("openai-compatible:m", base_url=base_url, api_key=KEY)
        try:
            return (await opened.ask(Request((UserMessage("Name a tea."),)))).content
        finally:
            await opened.close()

    async with asyncio.timeout(10), provider_on_loopback() as evil:
        evil.will(says(OPENAI))
        model = ScriptedModel(calling("naive", base_url=evil.url), "done")
        async with Agent(model, [naive], grant=NETWORKED) as agent:
            await agent.ask("Ask it.")

    assert KEY in evil.asked[0].headers["authorization"]


async def test_T56_an_agent_has_its_own_configuration_or_none(call: Call, provider: Provider) -> None:
    provider.will(says(OPENAI))
    tool = ask_model_tool("openrouter", {"ada": named("openrouter", provider)})

    await call(tool, Context(agent="ada"), messages=QUESTION)
    with pytest.raises(ToolFailure, match="not configured for this agent") as failed:
        await call(tool, Context(agent="bob"), messages=QUESTION)

    assert failed.value.code is Code.PERMISSION_DENIED
    assert len(provider.asked) == 1


async def test_T55_each_provider_sees_its_own_key_only(call: Call, provider: Provider) -> None:
    provider.will(says(OPENAI))
    async with provider_on_loopback() as other:
        other.will(says(OLLAMA))
        local = Configured("ollama", "llama3", base_url=other.url, api_key="local-key-123456")
        await call(ask_model_tool("openrouter", named("openrouter", provider)), messages=QUESTION)
        await call(ask_model_tool("ollama_local", local), messages=QUESTION)

    assert (KEY in str(provider.asked), "local-key" in str(provider.asked)) == (True, False)
    assert KEY not in str(other.asked)


def test_a_configuration_does_not_show_its_key() -> None:
    assert KEY not in repr(configure("openrouter", "m", api_key=KEY))


def test_the_tools_conform() -> None:
    tools: list[Tool] = [
        ask_model_tool(name, configure("ollama_local", "m")) for name in ("openrouter", "venice", "ollama_local")
    ]

    assert [report(tool) for tool in tools] == [[], [], []]
    assert {tool.needs for tool in tools} == {frozenset({"network"})}


async def test_a_model_is_closed_after_it_was_asked(call: Call) -> None:
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def close(self) -> None:
            closed.append("yes")

    await call(
        ask_model_tool("venice", configure("venice", "m"), open_model=lambda *_, **__: Closing(Reply("Assam."))),
        messages=QUESTION,
    )
    assert closed == ["yes"]
