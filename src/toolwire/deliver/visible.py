"""What models and people see of a tool's output: its words, and nothing that acts on a terminal or hides from eyes.

Escape sequences, control characters, marks that turn text around and characters that show nothing are taken out.
Line ends and tabs stay; a carriage return that would write over a line becomes a line end.
"""

import re
from typing import Any

import orjson

from toolwire.protocol.calls import Block, ErrorText, Text, ToolError, ToolResult
from toolwire.protocol.values import changed

# Marks of direction, zero width, fillers, tags and selectors: what text can carry without anyone seeing it.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff"
_ENDS_A_LINE = "\u2028\u2029\x85"
_LONE_RETURN = r"\r(?!\n)"
# No part can be read in two ways and each ends at the next ESC, so that the whole is one pass over the text.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]?"  # CSI: colours, cursor, modes
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)"  # OSC, DCS and other strings
    r"|\x1b[ -/]*+[0-~]?"  # anything else that ESC begins, or a lone ESC
    rf"|[{_CONTROLS}{_UNSEEN}]+"
)
# One of them chooses between text and picture; a row of them can only carry something unseen.
_SELECTORS = re.compile(r"(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]+")
_SUSPECT = re.compile(rf"[{_CONTROLS}{_UNSEEN}{_ENDS_A_LINE}\ufe0e\ufe0f]|{_LONE_RETURN}")
_ESCAPED = ("\\u00", "\\b", "\\f", "\\r", "\x7f")  # how JSON writes control characters
_LINE_END = re.compile(rf"[{_ENDS_A_LINE}]|{_LONE_RETURN}")


def visible(text: str) -> str:
    """The text as it may be shown. A text with nothing to take out comes back as it is."""
    if _is_plain(text) or _SUSPECT.search(text) is None:
        return text
    return _SELECTORS.sub("", _SEQUENCE.sub("", _LINE_END.sub("\n", text)))


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
    return changed(result, content=content, structured=after, stderr=stderr, error=error)


def _is_plain(text: str) -> bool:
    """Whether a text is ASCII without control characters: a quick look that spares most texts the thorough one."""
    return text.isascii() and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable())


def _holds_only_plain_text(value: Any) -> bool:
    """Whether nothing has to be taken out of a value, seen by its JSON, which is quicker than walking through it."""
    if isinstance(value, (int, float)):
        return True
    try:
        written = orjson.dumps(value).decode()
    except (orjson.JSONEncodeError, UnicodeDecodeError):
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
    return error if message is error.message else changed(error, message=message)


def _visible_tree(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key) if isinstance(key, str) else key: _visible_tree(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_visible_tree(inner) for inner in value]
    return value
