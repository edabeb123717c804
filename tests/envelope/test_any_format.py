"""The envelope is about output, and so goes with every way of calling a tool."""

import json
import subprocess
from typing import Any

import pytest
from msgspec.structs import replace

from tests.envelope.stage import Stage
from tests.forked import TE
from toolwire import Agent, parse_reply, tool
from toolwire.deliver.envelope import Envelope, read
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.testing import ScriptedModel
from toolwire.wire.encode.request import Dialect, encode_request
from toolwire.wire.formats.registry import DIALECTS

ARGUMENTS = '{"command": "grep needle"}'
REPLIES: dict[str, Any] = {
    "openai": {
        "choices": [
            {
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "shell", "arguments": ARGUMENTS}}
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "anthropic": {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "b", "name": "shell", "input": {"command": "grep needle"}}],
        "stop_reason": "tool_use",
    },
    "text": f'<tool_call>{{"name": "shell", "arguments": {ARGUMENTS}}}</tool_call>',
}


@pytest.fixture
def shell(stage: Stage) -> Tool:
    stage.write("a.txt", "needle\n")

    @tool
    def shell(command: str) -> str:
        """Run te."""
        return subprocess.run(
            [TE, *command.split()], cwd=stage.folder, capture_output=True, check=False
        ).stdout.decode()

    return shell


def strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for inner in value.values() for text in strings(inner)]
        case list():
            return [text for inner in value for text in strings(inner)]
        case _:
            return []


def envelope_in(text: str) -> Envelope | None:
    found = read(text[text.find("# TE_BEGIN_META") :])
    return found[0] if found else None


@pytest.mark.feature("F214")
@pytest.mark.parametrize("provider", REPLIES)
async def test_a_call_read_from_any_format_is_answered_with_the_same_envelope(shell: Tool, provider: str) -> None:
    (call,) = parse_reply(REPLIES[provider], tools=[shell], provider=provider).calls
    async with Agent(ScriptedModel(), [shell]) as agent:
        result = await agent.call(call.name, dict(call.arguments))

    found = envelope_in(result.text)
    assert found is not None
    assert (found.cmd, found.facts["matches"]) == ("grep", 1)
    assert found.body == "./a.txt:1:needle"


@pytest.mark.feature("F214")
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_every_dialect_hands_the_envelope_to_its_model_unharmed(shell: Tool, dialect: Dialect) -> None:
    call = ToolCall("shell", {"command": "grep needle"}, id="call_1")
    async with Agent(ScriptedModel(), [shell]) as agent:
        result = replace(await agent.call(call.name, dict(call.arguments)), call_id=call.id)
    request = Request((UserMessage("Where?"), Reply("", calls=(call,)), ResultsMessage((result,))), (shell,))

    body = encode_request(dialect, request, dialect.frame(request, "m"))

    (carried,) = [one for one in strings(body) if "# TE_BEGIN_META" in one]
    text = result.text.strip()
    assert text in carried or json.dumps(text)[1:-1] in carried
