"""Results that fit: what is too long is cut in the middle, visibly, and the whole stays reachable by its handle."""

from dataclasses import replace

from toolwire.protocol.calls import Block, ErrorText, Text, ToolResult

_HEAD_SHARE = 2 / 3


def overflow(result: ToolResult, most_chars: int) -> bytes | None:
    """The whole text of a result that is longer than the model should see; None when it fits."""
    length = 0
    for block in result.content:
        if isinstance(block, (Text, ErrorText)):
            length += len(block.text)
    return result.text.encode("utf-8", "replace") if length > most_chars else None


def trimmed(result: ToolResult, most_chars: int, handle: str | None) -> ToolResult:
    """The result with its head and tail, and in between a line that says what is missing and where the whole is."""
    others: tuple[Block, ...] = tuple(block for block in result.content if not isinstance(block, (Text, ErrorText)))
    whole = "\n".join(block.text for block in result.content if isinstance(block, (Text, ErrorText)))
    head = int(most_chars * _HEAD_SHARE)
    tail = most_chars - head
    marker = (
        f"\n[… {len(whole) - most_chars:,} of {len(whole):,} characters left out; the whole is kept as {handle} …]\n"
    )
    shown = Text(whole[:head] + marker + whole[len(whole) - tail :])
    return replace(result, content=(shown, *others), structured=None, truncated=True, handle=handle)
