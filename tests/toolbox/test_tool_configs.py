"""`config_id`: a call uses a configuration that is bound to its tool and its agent, and no other."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.models.provider import Provider, provider_on_loopback, says
from toolwire import Agent, Grant, Tier, Tool, tool
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.sealing import KeyFile, Sealer
from toolwire.breadcrumbs.service import RecordRules, RecordService
from toolwire.execute.skill_modules import module_context
from toolwire.protocol.calls import CallOptions, ToolCall, ToolResult
from toolwire.protocol.chat import ResultsMessage
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.record.memory import MemoryStore
from toolwire.testing import ScriptedModel
from toolwire.toolbox.agents.model_tools import ask_model_tool

ADMIN = Caller("ann", Role.ADMIN)
KEY = "sk-9f8e7d6c5b4a"
ANSWER = {
    "model": "vendor/model",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Assam."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
}
QUESTION = {"messages": [{"role": "user", "content": "Name a tea."}]}
GRANT = Grant(Tier.RUN, frozenset({"network"}), confirmed=frozenset("*"))


@tool(name="blab")
def blab(context: Context) -> dict[str, Any]:
    """Tell everything."""
    return {"config": dict(context.config or {}), "words": f"the key is {(context.config or {}).get('apiKey')}"}


class Configs:
    """Configurations among the records of a project."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        rules = RecordRules(sealer=Sealer(KeyFile(folder / "records.key"), "default"))
        self.service = RecordService(self.store, "default", rules=rules)

    async def keep(self, **context: Any) -> str:
        return (await self.service.create(NewRecord("tool.config.v1", "Keys", context=context), ADMIN)).id

    async def call(self, tool: Tool, config_id: str, arguments: dict[str, Any], agent: str = "writer") -> ToolResult:
        """The result of a call that a model makes with this configuration."""
        asked = ToolCall(tool.name, arguments, alias="x", options=CallOptions(config_id=config_id))
        made = Agent(
            ScriptedModel(asked, "Done."), [tool], grant=GRANT, store=self.store, name=agent,
            open_config=self.service.open_config,
        )  # fmt: skip
        kept = await self.store.turn((await made.ask("Go")).turn_id)
        [result] = [one for said in kept.events if isinstance(said, ResultsMessage) for one in said.results]
        return result


@pytest.fixture
def configs(tmp_path: Path) -> Configs:
    return Configs(tmp_path)


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with asyncio.timeout(10), provider_on_loopback() as served:
        served.will(says(ANSWER))
        yield served


@pytest.mark.feature("F013", "F237")
@pytest.mark.parametrize("name", ["openrouter", "venice"])
async def test_a_configuration_gives_a_tool_its_key_model_and_settings(
    configs: Configs, provider: Provider, name: str
) -> None:
    config_id = await configs.keep(
        toolName=name,
        agents=["writer"],
        config={
            "apiKey": KEY, "defaultModel": "vendor/model", "baseUrl": f"{provider.url}/api/v1", "temperature": 0.3,
            "maxTokens": 77,
        },
    )  # fmt: skip
    result = await configs.call(ask_model_tool(name, {}), config_id, QUESTION)
    assert result.structured["content"] == "Assam.", result.text
    [asked] = provider.asked
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert (asked.body["model"], asked.body["temperature"]) == ("vendor/model", 0.3)
    assert 77 in asked.body.values()
    used = [row for row in await configs.store.audit_log() if row.event == "record_secret_used"]
    assert [(row.tool, row.agent, row.detail["record"]) for row in used] == [(name, "writer", config_id)]


async def test_a_call_chooses_among_the_models_of_its_configuration_and_what_it_says_wins(
    configs: Configs, provider: Provider
) -> None:
    config_id = await configs.keep(
        tools=["openrouter"], agents="*",
        config={
            "apiKey": KEY, "defaultModel": "a", "models": ["b"], "baseUrl": f"{provider.url}/v1", "temperature": 0.3,
        },
    )  # fmt: skip
    ask = ask_model_tool("openrouter", {})
    await configs.call(ask, config_id, {**QUESTION, "model": "b", "temperature": 1.5})
    assert (provider.asked[0].body["model"], provider.asked[0].body["temperature"]) == ("b", 1.5)
    other = await configs.call(ask, config_id, {**QUESTION, "model": "c"})
    assert "not configured" in other.text
    assert len(provider.asked) == 1


async def test_T262_a_model_cannot_pick_the_keys_of_another_tool_or_agent(configs: Configs) -> None:
    not_yours = [
        await configs.keep(toolName="openrouter", agents=["writer"], config={"apiKey": KEY}),
        await configs.keep(toolName="blab", agents=["editor"], config={"apiKey": KEY}),
        await configs.keep(toolName="blab", config={"apiKey": KEY}),
        await configs.keep(agents=["*"], config={"apiKey": KEY}),
        await configs.keep(tools="*", agents="*", config={"apiKey": KEY}),
        (await configs.service.create(NewRecord("note.v1", "Not a configuration"), ADMIN)).id,
        "0198c5e2-7d07-7cc2-8f1a-000000000000",
        "call~x~y",
    ]
    sentences = set()
    for config_id in not_yours:
        result = await configs.call(blab, config_id, {})
        assert result.error is not None, config_id
        assert result.error.code is Code.PERMISSION_DENIED
        sentences.add(result.error.message.replace(config_id, "ID"))
    assert sentences == {"the configuration 'ID' does not exist, or this call may not use it."}
    refused = [row for row in await configs.store.audit_log() if row.event == "record_refused"]
    assert [row.agent for row in refused] == ["writer"] * len(not_yours)


async def test_T262_control_a_configuration_of_the_tool_and_the_agent_is_used(configs: Configs) -> None:
    config_id = await configs.keep(tools=["echo", "blab"], agents=["editor", "writer"], config={"mode": "loud"})
    assert (await configs.call(blab, config_id, {})).structured["config"] == {"mode": "loud"}


async def test_T263_what_is_secret_in_a_configuration_is_in_no_result(configs: Configs) -> None:
    config_id = await configs.keep(
        toolName="blab", agents=["*"],
        config={"apiKey": KEY, "secrets": {"mail": "correct horse battery"}, "defaultModel": "vendor/model"},
    )  # fmt: skip
    result = await configs.call(blab, config_id, {})
    assert KEY not in repr(result)
    assert "correct horse" not in repr(result)
    assert result.structured["config"]["defaultModel"] == "vendor/model"


async def test_T263_control_a_call_without_a_configuration_has_none(configs: Configs) -> None:
    result = await configs.call(blab, "", {})
    assert result.structured == {"config": {}, "words": "the key is None"}


async def test_the_key_of_the_settings_is_not_sent_to_the_address_of_a_configuration(
    configs: Configs, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", KEY)
    config_id = await configs.keep(
        toolName="openrouter", agents="*", config={"defaultModel": "a", "baseUrl": f"{provider.url}/v1"}
    )
    await configs.call(ask_model_tool("openrouter", {}), config_id, QUESTION)
    assert KEY not in repr(provider.asked)


def test_a_module_of_a_skill_gets_the_configuration_of_its_call() -> None:
    assert module_context(Context(config={"apiKey": KEY}))["config"] == {"apiKey": KEY}
    assert module_context(Context())["config"] == {}
