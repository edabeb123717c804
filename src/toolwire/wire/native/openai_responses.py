"""OpenAI Responses: items in `output`, whole or as a stream of events. The id to answer with is `call_id`."""

from typing import Any

from toolwire.protocol.calls import Problem
from toolwire.protocol.chat import Usage
from toolwire.wire.replies.draft import Draft, OpenCall, count, key


def read(draft: Draft, data: dict[str, Any]) -> None:
    """Read a whole response or one event."""
    kind = data.get("type")
    if isinstance(kind, str) and (kind.startswith("response.") or kind == "error"):
        _read_event(draft, kind, data)
    else:
        _read_response(draft, data, items=True)


def _read_response(draft: Draft, response: Any, *, items: bool) -> None:
    if not isinstance(response, dict):
        return
    model = response.get("model")
    if isinstance(model, str):
        draft.model = model
    output = response.get("output")
    for position, item in enumerate(output if items and isinstance(output, list) else ()):
        if isinstance(item, dict):
            _read_item(draft, item, ("item", position))
    _read_usage(draft, response.get("usage"))
    _read_status(draft, response)


def _read_status(draft: Draft, response: dict[str, Any]) -> None:
    status = response.get("status")
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    if status == "incomplete":
        draft.ended(reason or "incomplete")
    elif status == "completed":
        draft.ended("stop")
    error = response.get("error")
    if isinstance(error, dict):
        draft.problems.append(Problem("provider_error", str(error.get("message"))[:300]))


def _read_usage(draft: Draft, usage: Any) -> None:
    if isinstance(usage, dict):
        details = usage.get("input_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        draft.usage = Usage(count(usage.get("input_tokens")), count(usage.get("output_tokens")), count(cached))


def _read_item(draft: Draft, item: dict[str, Any], by: Any) -> None:
    match item.get("type"):
        case "function_call" | "custom_tool_call":
            call = _open(draft, item, by)
            draft.add(call, item.get("arguments", item.get("input")))
        case "message":
            _read_parts(draft, item.get("content"))
        case "reasoning":
            _read_summary(draft, item)
            draft.keep("openai_responses", item)
        case _:
            pass  # items that the provider has run itself


def _open(draft: Draft, item: dict[str, Any], by: Any) -> OpenCall:
    call = draft.open(by, item.get("name"), item.get("call_id") or item.get("id"), item)
    call.free_text = item.get("type") == "custom_tool_call"
    call.cut = item.get("status") == "incomplete"
    return call


def _read_parts(draft: Draft, content: Any) -> None:
    if isinstance(content, str):
        draft.say(content)
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            draft.say(part.get("text") or part.get("refusal"))


def _read_summary(draft: Draft, item: dict[str, Any]) -> None:
    for field in ("summary", "content"):
        parts = item.get(field)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                draft.think(part.get("text"))


def _read_event(draft: Draft, kind: str, data: dict[str, Any]) -> None:
    item = data.get("item")
    by = _place(data, item)
    match kind.removeprefix("response."):
        case "output_text.delta" | "refusal.delta":
            draft.heard.add(by)
            draft.say(data.get("delta"))
        case "reasoning_summary_text.delta" | "reasoning_text.delta":
            draft.heard.add(by)
            draft.think(data.get("delta"))
        case "output_item.added" if isinstance(item, dict):
            if item.get("type") in ("function_call", "custom_tool_call"):
                _open(draft, item, by)
        case "function_call_arguments.delta" | "custom_tool_call_input.delta":
            _extend(draft, by, data.get("delta"))
        case "function_call_arguments.done" | "custom_tool_call_input.done":
            _complete(draft, by, data.get("arguments", data.get("input")))
        case "output_item.done" if isinstance(item, dict):
            _finish_item(draft, item, by)
        case "completed" | "incomplete" | "failed":
            _read_response(draft, data.get("response"), items=not (draft.calls or draft.heard))
        case "error" | "failed.error":
            draft.problems.append(Problem("provider_error", str(data.get("message"))[:300]))
        case _:
            pass


def _place(data: dict[str, Any], item: Any) -> Any:
    """What an event belongs to: its place in the output, or the id of its item where a server leaves that out."""
    place = key(data.get("output_index"))
    if place is not None:
        return place
    return key(item.get("id") if isinstance(item, dict) else data.get("item_id"))


def _extend(draft: Draft, by: Any, fragment: Any) -> None:
    call = draft.by_key.get(by)
    if call is not None:
        draft.add(call, fragment)


def _complete(draft: Draft, by: Any, whole: Any) -> None:
    """The end repeats all that was streamed; it counts only where nothing was."""
    call = draft.by_key.get(by)
    if call is not None and not call.fragments:
        draft.add(call, whole)


def _finish_item(draft: Draft, item: dict[str, Any], by: Any) -> None:
    call = draft.by_key.get(by)
    if call is None:
        if by not in draft.heard:
            draft.heard.add(by)
            _read_item(draft, item, by)
        elif item.get("type") == "reasoning":
            draft.keep("openai_responses", item)
        return
    call.cut = item.get("status") == "incomplete"
    _complete(draft, by, item.get("arguments", item.get("input")))
