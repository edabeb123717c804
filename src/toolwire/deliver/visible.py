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
_SUSPECT_JSON = re.compile(rf"[{_CONTROLS}{_UNSEEN}{_ENDS_A_LINE}\ufe0e\ufe0f]|\\u00[0189]|\\[bf]|\\r(?!\\n)")
_LINE_END = re.compile(rf"[{_ENDS_A_LINE}]|{_LONE_RETURN}")


def visible(text: str) -> str:
    """The text as it may be shown. A text with nothing to take out comes back as it is."""
    if (text.isascii() and text.isprintable()) or _SUSPECT.search(text) is None:
        return text
    return _SELECTORS.sub("", _SEQUENCE.sub("", _LINE_END.sub("\n", text)))


def visible_result(result: ToolResult) -> ToolResult:
    """The result as it may be shown; the very same one if nothing had to be taken out."""
    before = after = result.structured
    if before is None and result.error is None and not result.stderr and len(result.content) == 1:
        shown = _visible_block(result.content[0])
        return result if shown is result.content[0] else changed(result, content=(shown,))
    if before is not None and _needs_a_look(result) and (clean := _visible_tree(before)) != before:
        after = clean
    content = tuple(_visible_block(_restated(block, before, after)) for block in result.content)
    stderr = visible(result.stderr) if result.stderr else ""
    error = _visible_error(result.error)
    if content == result.content and after is before and stderr == result.stderr and error is result.error:
        return result
    return changed(result, content=content, structured=after, stderr=stderr, error=error)


def _needs_a_look(result: ToolResult) -> bool:
    """Whether the value may hold something to take out: its JSON, which is nearly always there, is a quick witness."""
    for block in result.content:
        if type(block) is Text and block.text[:1] in {"{", "[", '"'}:
            return _SUSPECT_JSON.search(block.text) is not None
    return not isinstance(result.structured, (int, float))


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


def _visible_error(error: ToolError | None) -> ToolError | None:
    if error is None or (message := visible(error.message)) is error.message:
        return error
    return changed(error, message=message)


def _visible_tree(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key) if isinstance(key, str) else key: _visible_tree(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_visible_tree(inner) for inner in value]
    return value
