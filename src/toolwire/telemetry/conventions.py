"""What spans say about turns, model calls and tool calls, under the names of the `gen_ai.*` semantic conventions.

The conventions are those of open-telemetry/semantic-conventions-genai (status: development). What they have no name for
stands under `toolwire.*`. Texts (questions, arguments, results, answers) are attributes only where they are wanted.
"""

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Reply, Usage
from toolwire.protocol.turns import EndReason, Turn, TurnKind
from toolwire.wire.encode.outbound import to_json

Clean = Callable[[str], str]
"""Takes secrets out of a text."""

Attributes = dict[str, str | bool | int | float | list[str]]

LONGEST_TEXT = 16_384
_LONGEST_NAME = 128
_PROVIDERS: Mapping[str, str] = {
    "mistral": "mistral_ai",
    "xai": "x_ai",
    "gemini": "gcp.gemini",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
}
_WITHOUT_FAULT = (EndReason.ANSWERED, EndReason.DELIVERED, EndReason.CANCELED, EndReason.STOPPED)


def short_name(name: str) -> str:
    """A name that a model or client chose, within bounds."""
    return name[:_LONGEST_NAME].encode("utf-8", "replace").decode()


def split_model(model: str) -> tuple[str, str]:
    """The provider, by its name in the conventions, and the model of a `provider:model` string."""
    provider, _, name = model.partition(":")
    return (_PROVIDERS.get(provider, provider), name) if name else ("toolwire", model)


def of_turn(turn: Turn) -> Attributes:
    """What is the same for the span of a turn and those of its parts."""
    said: Attributes = {"toolwire.project": turn.project, "toolwire.turn.id": turn.id}
    said["toolwire.turn.epoch"] = turn.epoch
    if turn.thread:
        said["gen_ai.conversation.id"] = short_name(turn.thread)
    return said


def invoked_agent(turn: Turn) -> Attributes:
    said = of_turn(turn) | {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": short_name(turn.agent)}
    if turn.kind is TurnKind.QUESTION:
        provider, model = split_model(turn.model)
        said |= {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
    return said


def asked_model(turn: Turn, iteration: int) -> Attributes:
    provider, model = split_model(turn.model)
    said = of_turn(turn) | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "toolwire.iteration": iteration,
    }
    if turn.spec is not None and turn.spec.model.temperature is not None:
        said["gen_ai.request.temperature"] = turn.spec.model.temperature
    if turn.spec is not None and turn.spec.model.max_tokens is not None:
        said["gen_ai.request.max_tokens"] = turn.spec.model.max_tokens
    return said


def reply_attributes(reply: Reply) -> Attributes:
    said: Attributes = {"gen_ai.response.finish_reasons": [reply.finish_reason], "toolwire.calls": len(reply.calls)}
    if reply.model:
        said["gen_ai.response.model"] = short_name(reply.model)
    if reply.problems:
        said["toolwire.problems"] = sorted({problem.code for problem in reply.problems})
    return said | usage_attributes(reply.usage)


def usage_attributes(usage: Usage) -> Attributes:
    said: Attributes = {}
    if usage.total_tokens:
        said = {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
    if usage.cached_tokens:
        said["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.cost_usd is not None:
        said["toolwire.cost_usd"] = usage.cost_usd
    return said


def executed_tool(name: str, call_id: str) -> Attributes:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": short_name(name),
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.type": "function",
    }


def ended_call(result: ToolResult) -> Attributes:
    said: Attributes = {"toolwire.call.status": result.status.value}
    if result.error is not None:
        said["error.type"] = str(result.error.code)
    if result.queued_ms:
        said["toolwire.call.queued_ms"] = result.queued_ms
    if result.engine:
        said["toolwire.sandbox.engine"] = result.engine
    return said


def fault_of(reason: EndReason) -> str:
    """What went wrong with a turn that ended, empty where nothing did."""
    return "" if reason in _WITHOUT_FAULT else reason.value


# Texts


def _text(words: str, clean: Clean) -> str:
    """Without secrets, then cut: half a secret could not be found any more."""
    return clean(words)[:LONGEST_TEXT].encode("utf-8", "replace").decode()


def _json_text(value: Any, clean: Clean) -> str:
    try:
        return _text(to_json(value).decode(), clean)
    except ValueError:
        return ""


def question_text(turn: Turn, clean: Clean) -> Attributes:
    said = [{"role": "user", "parts": [{"type": "text", "content": turn.question}]}]
    return {"gen_ai.input.messages": _json_text(said, clean)}


def answer_text(answer: str, reason: str, clean: Clean) -> Attributes:
    said = {"role": "assistant", "parts": [{"type": "text", "content": answer}], "finish_reason": reason}
    return {"gen_ai.output.messages": _json_text([said], clean)}


def reply_text(reply: Reply, clean: Clean) -> Attributes:
    parts: list[dict[str, Any]] = [{"type": "text", "content": reply.content}] if reply.content else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}
        for call in reply.calls
    ]
    said = {"role": "assistant", "parts": parts, "finish_reason": reply.finish_reason}
    return {"gen_ai.output.messages": _json_text([said], clean)}


def call_text(call: ToolCall, result: ToolResult | None, clean: Clean) -> Attributes:
    said: Attributes = {"gen_ai.tool.call.arguments": _json_text(dict(call.arguments), clean)}
    if result is not None:
        said["gen_ai.tool.call.result"] = _text(result.text, clean)
    return said
