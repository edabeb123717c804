"""Gemini: parts of a candidate, whole or chunk by chunk, and arguments streamed by JSON path."""

import base64
import re
from itertools import pairwise
from typing import Any

from toolwire.protocol.calls import Problem
from toolwire.protocol.chat import Usage
from toolwire.wire.replies.draft import Draft, OpenCall, count

_STEP = re.compile(r"\.?([^.\[\]]{1,200})|\[(\d{1,6})\]|\[['\"]([^'\"]{1,200})['\"]\]")
_BAD_ENDINGS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
_WIDEST = 10_000


def read(draft: Draft, data: dict[str, Any]) -> None:
    """Read a whole response or one chunk."""
    model = _either(data, "modelVersion", "model_version")
    if isinstance(model, str):
        draft.model = model
    _read_usage(draft, _either(data, "usageMetadata", "usage_metadata"))
    candidates = data.get("candidates")
    candidate = candidates[0] if isinstance(candidates, list) and candidates else None
    if not isinstance(candidate, dict):
        return
    content = candidate.get("content")
    parts = content.get("parts") if isinstance(content, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict):
            _read_part(draft, part)
    reason = _either(candidate, "finishReason", "finish_reason")
    reason = getattr(reason, "value", reason)
    draft.ended(reason)
    if isinstance(reason, str) and reason in _BAD_ENDINGS:
        said = _either(candidate, "finishMessage", "finish_message")
        draft.problems.append(Problem("malformed", str(said or reason)[:300]))


def _either(data: dict[str, Any], camel: str, snake: str) -> Any:
    found = data.get(camel)
    return data.get(snake) if found is None else found


def _read_usage(draft: Draft, usage: Any) -> None:
    if not isinstance(usage, dict):
        return
    thought = count(_either(usage, "thoughtsTokenCount", "thoughts_token_count"))
    draft.usage = Usage(
        count(_either(usage, "promptTokenCount", "prompt_token_count")),
        count(_either(usage, "candidatesTokenCount", "candidates_token_count")) + thought,
        count(_either(usage, "cachedContentTokenCount", "cached_content_token_count")),
    )


def _read_part(draft: Draft, part: dict[str, Any]) -> None:
    call = _either(part, "functionCall", "function_call")
    signature = _either(part, "thoughtSignature", "thought_signature")
    if isinstance(signature, bytes):
        signature = base64.urlsafe_b64encode(signature).decode()
    if signature is not None:
        draft.keep("gemini", {"thoughtSignature": signature, "call": len(draft.calls) if call else None})
    if isinstance(call, dict):
        _read_call(draft, call)
    elif part.get("thought") is True:
        draft.think(part.get("text"))
    else:
        draft.say(part.get("text"))


def _read_call(draft: Draft, call: dict[str, Any]) -> None:
    name = call.get("name")
    pieces = _either(call, "partialArgs", "partial_args")
    continues = _either(call, "willContinue", "will_continue") is True
    opened = draft.by_key.get("continued")
    if isinstance(name, str) and name:
        opened = draft.open("continued" if continues or pieces else None, name, call.get("id"), call)
        draft.add(opened, call.get("args"))
    if opened is None:
        return
    for piece in pieces if isinstance(pieces, list) else ():
        if isinstance(piece, dict):
            _place(opened, piece)
    if continues:
        opened.cut = True
    else:
        opened.cut = False
        draft.by_key.pop("continued", None)


def _place(call: OpenCall, piece: dict[str, Any]) -> None:
    """Put one streamed value at its path; text of one path is appended."""
    path = _either(piece, "jsonPath", "json_path")
    steps = [name or quoted or int(index) for name, index, quoted in _STEP.findall(str(path)[:1000].removeprefix("$"))]
    if not steps:
        return
    if not isinstance(call.arguments, dict):
        call.arguments = {}
    here: Any = call.arguments
    for step, following in pairwise(steps):
        here = _child(here, step, [] if isinstance(following, int) else {})
        if here is None:
            return
    text = _either(piece, "stringValue", "string_value")
    if isinstance(text, str):
        before = _at(here, steps[-1])
        _set(here, steps[-1], (before if isinstance(before, str) else "") + text)
        return
    number = _either(piece, "numberValue", "number_value")
    flag = _either(piece, "boolValue", "bool_value")
    _set(here, steps[-1], number if number is not None else flag)


def _at(container: Any, step: Any) -> Any:
    if isinstance(container, list):
        return container[step] if isinstance(step, int) and step < len(container) else None
    return container.get(step) if isinstance(container, dict) else None


def _set(container: Any, step: Any, value: Any) -> None:
    if isinstance(container, dict):
        container[str(step)] = value
    elif isinstance(container, list) and isinstance(step, int) and step < _WIDEST:
        container.extend([None] * (step + 1 - len(container)))
        container[step] = value


def _child(container: Any, step: Any, fresh: Any) -> Any:
    found = _at(container, step)
    if not isinstance(found, dict | list):
        _set(container, step, fresh)
        found = _at(container, step)
    return found
