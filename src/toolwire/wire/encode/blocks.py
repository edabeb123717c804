"""Messages made of blocks under a role, as Anthropic and Bedrock want them."""

import re
from collections.abc import Callable

from msgspec import Struct

from toolwire.protocol.calls import Image, Resource, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage, UserMessage
from toolwire.wire.encode.outbound import CallIds, Json
from toolwire.wire.encode.pictures import written_parts

NOTHING = "(nothing)"
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def plain_id(text: str) -> bool:
    """Whether both APIs take this text as the id of a call."""
    return _ID.fullmatch(text) is not None


class BlockWriter(Struct, frozen=True):
    """How one provider writes each block. `carried` gives the provider's own signed reasoning back.

    Reasoning precedes everything else of its message: both providers refuse it anywhere else.
    """

    text: Callable[[str], Json]
    image: Callable[[Image | Resource], Json | None]
    call: Callable[[ToolCall, CallIds], Json]
    result: Callable[[ToolResult, CallIds], Json]
    carried: Callable[[Reply], list[Json]]

    def encode_message(self, message: Message, ids: CallIds) -> list[Json]:
        """One message as blocks under a role. A reply without anything in it is left out: empty content is refused."""
        match message:
            case Reply():
                blocks = self._reply(message, ids)
                return [{"role": "assistant", "content": blocks}] if blocks else []
            case ResultsMessage(results):
                return [{"role": "user", "content": [self.result(result, ids) for result in results]}]
            case UserMessage(parts=parts) if parts:
                return [{"role": "user", "content": written_parts(message, self.text, self.image)}]
            case UserMessage(text) | Note(text):
                return [{"role": "user", "content": [self.text(text if text.strip() else NOTHING)]}]

    def _reply(self, reply: Reply, ids: CallIds) -> list[Json]:
        blocks = self.carried(reply)
        if reply.content.strip():
            blocks.append(self.text(reply.content))
        blocks.extend(self.call(call, ids) for call in reply.calls)
        return blocks
