"""OpenAI chat completions and everything that imitates them: vLLM, Mistral, OpenRouter, llama.cpp and others."""

from typing import Any

from toolwire.protocol.chat import Usage
from toolwire.wire.lenient.arguments import is_complete
from toolwire.wire.replies.draft import Draft, OpenCall, count

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


def read(draft: Draft, data: dict[str, Any]) -> None:
    """Read a whole completion or one chunk of a stream."""
    model = data.get("model")
    if isinstance(model, str):
        draft.model = model
    read_usage(draft, data.get("usage"))
    choice = _first_choice(data.get("choices"))
    if choice is None:
        return
    delta = choice.get("delta")
    message = choice.get("message")
    if isinstance(delta, dict):
        read_message(draft, delta, streamed=True)
        # Some servers repeat in `message` all that was streamed so far.
        message = None if delta or draft.said or draft.calls else message
    if isinstance(message, dict):
        read_message(draft, message)
    elif isinstance(choice.get("text"), str):
        draft.say(choice["text"])
    draft.ended(choice.get("finish_reason"))


def _first_choice(choices: Any) -> dict[str, Any] | None:
    """The first of several answers to one request; chunks of the others come between its own."""
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) in (0, None):
            return choice
    return None


def read_usage(draft: Draft, usage: Any) -> None:
    if not isinstance(usage, dict):
        return
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    draft.usage = Usage(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), count(cached))


def read_message(draft: Draft, message: dict[str, Any], *, streamed: bool = False) -> None:
    """Read a message or a delta of one: reasoning, content, calls, in this order."""
    for field in _REASONING_FIELDS:
        thought = message.get(field)
        if thought and isinstance(thought, str):
            draft.think(thought)
            break
    else:
        _read_reasoning_details(draft, message.get("reasoning_details"))
    read_content(draft, message.get("content"))
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    for entry in calls if isinstance(calls, list) else ():
        if isinstance(entry, dict):
            read_call(draft, entry, streamed=streamed)
    legacy = message.get("function_call")
    if isinstance(legacy, dict) and not calls:
        read_call(draft, {"index": 0, "function": legacy}, streamed=streamed)


def _read_reasoning_details(draft: Draft, details: Any) -> None:
    for item in details if isinstance(details, list) else ():
        if isinstance(item, dict):
            draft.think(item.get("text") or item.get("summary"))


def read_content(draft: Draft, content: Any) -> None:
    """Text, or a list of typed parts of which some may be thinking."""
    if isinstance(content, str):
        draft.say(content)
        return
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            draft.say(part)
        elif isinstance(part, dict):
            thinking = part.get("thinking")
            if thinking is not None:
                _think(draft, thinking)
            else:
                draft.say(part.get("text"))


def _think(draft: Draft, thinking: Any) -> None:
    if isinstance(thinking, list):
        for item in thinking:
            draft.think(item.get("text") if isinstance(item, dict) else item)
    else:
        draft.think(thinking)


def read_call(draft: Draft, entry: dict[str, Any], *, streamed: bool = False) -> None:
    """One entry of `tool_calls`: a whole call, or a fragment that belongs to one."""
    custom = entry.get("custom")
    inner = custom if isinstance(custom, dict) else entry.get("function")
    if not isinstance(inner, dict):
        inner = {**entry, "name": inner} if isinstance(inner, str) else entry
    name = inner.get("name") or inner.get("tool_name") or inner.get("tool")
    arguments = (
        inner.get("input") if isinstance(custom, dict) else _first(inner, "arguments", "parameters", "input", "args")
    )
    alias = entry.get("id") or entry.get("call_id") or entry.get("tool_call_id")
    call = _continued(draft, entry, name, alias, arguments) if streamed else None
    if call is None:
        key = entry.get("index")
        call = draft.open(key if isinstance(key, int) else len(draft.calls), name, alias, entry)
        call.free_text = isinstance(custom, dict)
    draft.add(call, arguments)


def _first(entry: dict[str, Any], *keys: str) -> Any:
    return next((entry[key] for key in keys if entry.get(key) is not None), None)


def _continued(draft: Draft, entry: dict[str, Any], name: Any, alias: Any, arguments: Any) -> OpenCall | None:
    """The open call that a fragment belongs to, or None if it begins a call.

    Compatible servers give every parallel call index 0, leave the index out, or repeat id and name in every fragment.
    """
    index = entry.get("index")
    call = draft.by_key.get(index) if isinstance(index, int) else (draft.calls[-1] if draft.calls else None)
    if call is None or (isinstance(alias, str) and alias and call.alias is not None and alias != call.alias):
        return None
    if isinstance(name, str) and name:
        if call.name and _begins_another(call, arguments):
            return None
        if not call.name or (name != call.name and not call.fragments and call.alias != alias):
            call.name += name
    if isinstance(alias, str) and alias:
        call.alias = alias
    return call


def _begins_another(call: OpenCall, arguments: Any) -> bool:
    if isinstance(arguments, dict):
        return True
    if not isinstance(arguments, str) or not arguments.lstrip().startswith("{") or not call.fragments:
        return False
    if call.checks <= 0 or not call.fragments[-1].rstrip().endswith("}"):
        return False
    call.checks -= 1
    return is_complete("".join(call.fragments))
