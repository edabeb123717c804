"""The designs that were tried for the embedded model, as models that can be asked. `kept` is the one we ship."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from toolwire.disclose.compact import compact_catalogue
from toolwire.models.local import LocalChat, Manner
from toolwire.models.local_engine import Engine, find_weights, shared_engine
from toolwire.models.local_examples import examples_of
from toolwire.models.local_grammar import json_grammar
from toolwire.models.local_prompt import said
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import ChatModel, Delta, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool

ASK = "You can use these tools:\n{}\nReply with one JSON object: a tool call or an answer."
SMALL_TALK = (("Hello!", "Hello! How can I help you?"), ("What is the capital of Spain?", "Madrid"))


class OneJson:
    """The plain way: the catalogue in the system prompt, one JSON object under a grammar as the reply."""

    name = "local:one-json"

    def __init__(self, engine: Engine, *, examples: bool) -> None:
        self.engine = engine
        self.examples = examples

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        prompt = said("system", ASK.format(compact_catalogue(request.tools)))
        prompt += "".join(_shots(request.tools)) if self.examples else ""
        prompt += "".join(_spoken(message) for message in request.messages) + "<|im_start|>assistant\n"
        done = any(isinstance(message, ResultsMessage) for message in request.messages)
        grammar = json_grammar(_reply_schema(() if done else request.tools))
        written = self.engine.write(prompt, slot=0, max_tokens=160, grammar=grammar)
        return _reply(written.text, Reply(usage=written.usage))

    async def close(self) -> None:
        """Nothing to let go of."""


def _reply_schema(tools: Sequence[Tool]) -> dict[str, Any]:
    answer = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    calls = [
        {
            "type": "object",
            "properties": {"tool": {"const": tool.name}, "arguments": {**tool.input_schema, "type": "object"}},
            "required": ["tool", "arguments"],
        }
        for tool in tools
    ]
    return {"anyOf": [*calls, answer]}


def _shots(tools: Sequence[Tool]) -> list[str]:
    calls = [
        said("user", one.request) + said("assistant", json.dumps({"tool": tool.name, "arguments": dict(one.arguments)}))
        for tool in tools
        for one in examples_of(tool)[:1]
    ]
    return calls + [said("user", ask) + said("assistant", json.dumps({"answer": told})) for ask, told in SMALL_TALK]


def _spoken(message: Any) -> str:
    match message:
        case UserMessage(text):
            return said("user", text)
        case Reply(raw=str(raw)):
            return said("assistant", raw)
        case ResultsMessage(results):
            return said("user", "Result: " + "\n".join(result.text for result in results))
    return ""


def _reply(text: str, empty: Reply) -> Reply:
    try:
        value = json.loads(text)
    except ValueError:
        return Reply(text, usage=empty.usage, raw=text)
    if "tool" in value:
        return Reply(calls=(ToolCall(value["tool"], value["arguments"]),), usage=empty.usage, raw=text)
    return Reply(value["answer"], usage=empty.usage, raw=text)


def _led(manner: Manner) -> Callable[[], ChatModel]:
    return lambda: LocalChat(_engine(), manner=manner)


def _engine() -> Engine:
    return shared_engine(find_weights("smollm2"))


DESIGNS: dict[str, Callable[[], ChatModel]] = {
    "kept": _led(Manner()),
    "one-json": lambda: OneJson(_engine(), examples=False),
    "one-json-examples": lambda: OneJson(_engine(), examples=True),
    "steps-uneven": _led(Manner(even=False, copy=False)),
    "steps-even": _led(Manner(copy=False)),
    "kept-without-phrases": _led(Manner(phrases={})),
}
