"""What users show besides what they say: read from the addresses that clients send, written part by part."""

from collections.abc import Callable
from typing import Any

from toolwire.protocol.calls import Block, Image, Resource, Text, in_words
from toolwire.protocol.chat import UserMessage

Json = dict[str, Any]

SHOWN_BY_ADDRESS = ("https://", "http://")


def picture(address: str) -> Image | Resource:
    """A picture as chat clients give it: its data in the address itself, or where it can be found."""
    head, found, data = address.partition(";base64,")
    if found and head.startswith("data:"):
        return Image(data, head.removeprefix("data:").partition(";")[0] or "image/png")
    return Resource(address, "image", "image/*")


def address(shown: Image | Resource) -> str:
    """The other way round."""
    return shown.uri if isinstance(shown, Resource) else f"data:{shown.media_type};base64,{shown.data}"


def is_picture(block: Block) -> bool:
    return isinstance(block, Image) or (isinstance(block, Resource) and block.media_type.startswith("image/"))


def is_on_the_web(block: Block) -> bool:
    """Whether a provider could fetch this by itself."""
    return isinstance(block, Resource) and block.uri.startswith(SHOWN_BY_ADDRESS)


def written_parts(
    message: UserMessage, say: Callable[[str], Json], show: Callable[[Image | Resource], Json | None]
) -> list[Json]:
    """The parts of a user's message in order; a picture that a dialect cannot show is told in words."""
    written: list[Json] = []
    for block in message.parts or (Text(message.text),):
        shown = show(block) if isinstance(block, Image | Resource) and is_picture(block) else None
        if shown is None and (words := in_words(block)).strip():
            shown = say(words)
        written += [shown] if shown else []
    return written
