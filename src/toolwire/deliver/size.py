"""Results that fit: what is too long is cut in the middle, visibly, and the whole stays reachable by its handle."""

import hashlib

from msgspec.structs import replace

from toolwire.protocol.calls import Block, ErrorText, Text, ToolResult

_HEAD_SHARE = 2 / 3


def fits(result: ToolResult, most_chars: int) -> bool:
    """Whether the words of a result are no more than the model should see."""
    length = 0
    for block in result.content:
        if isinstance(block, (Text, ErrorText)):
            length += len(block.text)
    return length <= most_chars


def whole(result: ToolResult) -> bytes:
    """All words of a result, as they are kept."""
    return result.text.encode("utf-8", "replace")


def trim_result(result: ToolResult, most_chars: int, handle: str | None, raw: bytes) -> ToolResult:
    """The result with its head and tail, and in between a line that says what is missing and where the whole is.

    `raw` is the output as the tool gave it, which `handle` names if it could be kept.
    """
    others: tuple[Block, ...] = tuple(block for block in result.content if not isinstance(block, (Text, ErrorText)))
    words = "\n".join(block.text for block in result.content if isinstance(block, (Text, ErrorText)))
    head = words[: int(most_chars * _HEAD_SHARE)]
    tail = words[len(words) - (most_chars - len(head)) :]
    shown = Text(head + _marker(head, tail, handle, raw) + tail)
    return replace(result, content=(shown, *others), structured=None, truncated=True, handle=handle)


def mark_removed(result: ToolResult, handle: str | None) -> ToolResult:
    """The result with a line that says that something was taken out, and where the raw output is."""
    return replace(result, content=(*result.content, Text(f"[{taken_out(handle)}]")), handle=handle)


def not_as_promised(result: ToolResult, handle: str | None) -> ToolResult:
    """The reason why a result is not what its tool promises, and where what it gave is."""
    error = result.error
    assert error is not None
    message = f"{error.message} What it gave is kept as {handle}." if handle else error.message
    told = (ErrorText(message, error.code),)
    return replace(result, content=told, error=replace(error, message=message), structured=None, handle=handle)


def taken_out(handle: str | None) -> str:
    """The sentence about an output from which something was taken out."""
    kept = f"the raw output is kept as {handle}" if handle else "the raw output could not be kept"
    return f"control sequences or invisible characters were taken out of this output; {kept}"


def _marker(head: str, tail: str, handle: str | None, raw: bytes) -> str:
    shown = len(head.encode("utf-8", "replace")) + len(tail.encode("utf-8", "replace"))
    kept = (
        f"the whole is kept as {handle}, read on there at offset {len(head.encode('utf-8', 'replace'))}"
        if handle
        else "the whole could not be kept"
    )
    digest = hashlib.sha256(raw).hexdigest()
    left_out = max(len(raw) - shown, 0)
    return f"\n[… {left_out:,} of {len(raw):,} bytes left out, {shown:,} shown, sha256 {digest}; {kept} …]\n"
