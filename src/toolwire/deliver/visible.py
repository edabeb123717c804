"""What models and people see of a tool's result: its words, without what acts on a terminal or hides from eyes."""

from typing import Any

import orjson
from msgspec.structs import replace

from toolwire.deliver.visible_text import visible
from toolwire.protocol.calls import Block, ErrorText, Text, ToolError, ToolResult

__all__ = ["visible", "visible_result"]

_ESCAPED = (b"\\u00", b"\\b", b"\\f", b"\\r", b"\x7f")  # how JSON writes control characters


def visible_result(result: ToolResult) -> ToolResult:
    """The result as it may be shown; the very same one if nothing had to be taken out."""
    before = after = result.structured
    if before is not None and not _holds_only_plain_text(before) and (shown := _visible_tree(before)) != before:
        after = shown
    content = tuple([_visible_block(_restated(block, before, after)) for block in result.content])
    stderr = visible(result.stderr) if result.stderr else ""
    error = result.error and _visible_error(result.error)
    if content == result.content and after is before and stderr == result.stderr and error is result.error:
        return result
    return replace(result, content=content, structured=after, stderr=stderr, error=error)


def _holds_only_plain_text(value: Any) -> bool:
    """Whether nothing has to be taken out of a value, seen by its JSON, which is quicker than walking through it."""
    if isinstance(value, (int, float)):
        return True
    try:
        written = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return written.isascii() and not any(mark in written for mark in _ESCAPED)


def _restated(block: Block, before: Any, after: Any) -> Block:
    """A block that said the value as JSON says the value as it is now: its escapes are text, and would stay."""
    if after is before or type(block) is not Text:
        return block
    try:
        if orjson.loads(block.text) != before:
            return block
        return Text(orjson.dumps(after).decode())
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return block


def _visible_block(block: Block) -> Block:
    match block:
        case Text(text) if (shown := visible(text)) is not text:
            return Text(shown)
        case ErrorText(text, code) if (shown := visible(text)) is not text:
            return ErrorText(shown, code)
        case _:
            return block


def _visible_error(error: ToolError) -> ToolError:
    message = visible(error.message)
    return error if message is error.message else replace(error, message=message)


def _visible_tree(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key) if isinstance(key, str) else key: _visible_tree(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_visible_tree(inner) for inner in value]
    return value
