"""The tool that reads on in an output that was too long to be shown at once."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Protocol, cast

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolwire.define.functions import tool
from toolwire.deliver.visible import visible
from toolwire.errors import NotFound, StoreUnavailable, ToolFailure
from toolwire.protocol.calls import Text, ToolOutput, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.record.contract import Store
from toolwire.record.projects import of_project

LARGEST_PAGE = 60_000
USUAL_PAGE = 12_000
MORE = "more"
_MOST_LOOKED_AT = 500
_NOWHERE = Context()

Fetch = Callable[[str, int, int], Awaitable[bytes]]
"""Gives a range of a kept body by its handle, offset and length. Raises NotFound or StoreUnavailable."""


class MoreOutput(TypedDict):
    handle: Annotated[str, Field(description="The output that was read.")]
    text: Annotated[str, Field(description="This part of it, without control sequences.")]
    offset: Annotated[int, Field(description="The byte at which this part begins.")]
    next_offset: Annotated[int | None, Field(description="The byte at which the next part begins; null at the end.")]


class BodyKeeper(Protocol):
    """What keeps large bodies and whose results they are; every store does."""

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes: ...

    async def calls(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50
    ) -> list[CallCard]: ...


class KeptBodies:
    """The kept bodies of a store, and where they came from. What another project keeps is not found."""

    def __init__(self, store: BodyKeeper) -> None:
        self._store = store

    def of(self, project: str) -> "KeptBodies":
        return KeptBodies(of_project(cast(Store, self._store), project))

    async def __call__(self, handle: str, offset: int, length: int) -> bytes:
        return await self._store.fetch(handle, offset=offset, length=length)

    async def untrusted_sources(self, handle: str, turn_id: str) -> list[str]:
        """Where a body with untrusted content was read: one that no known result has, too."""
        cards = [
            *await self._store.calls(turn_id=turn_id, limit=_MOST_LOOKED_AT),
            *await self._store.calls(limit=_MOST_LOOKED_AT),
        ]
        found = [card.result for card in cards if card.result is not None and _has(card.result, handle)]
        read = [place for one in found if one.untrusted for place in one.origins or (f"tool:{one.name}",)]
        return read if found else [handle]


def from_store(store: BodyKeeper) -> KeptBodies:
    """The kept bodies of a store, for `more_tool`."""
    return KeptBodies(store)


def more_tool(fetch: Fetch) -> Tool:
    """The tool that pages through what `fetch` keeps."""

    @tool(
        name=MORE,
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="utility",
        output_schema=TypeAdapter(MoreOutput).json_schema(),
        examples=({"handle": f"sha256:{'0' * 64}", "offset": 12_000},),
    )
    async def more(
        handle: Annotated[str, Field(min_length=1, max_length=200)],
        offset: Annotated[int, Field(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Field(ge=100, le=LARGEST_PAGE)] = USUAL_PAGE,
        context: Context = _NOWHERE,
    ) -> ToolOutput:
        """Read on in a long output that was cut. Its handle stands where it was cut, and stays valid.

        Args:
            handle: The handle of the output, such as sha256:….
            offset: The byte to begin at; begin with the one that the cut names.
            limit: How many bytes to read at most.
        """
        bodies = fetch.of(context.project) if isinstance(fetch, KeptBodies) else fetch
        try:
            body = await bodies(handle, offset, limit + 4)
        except NotFound:
            raise ToolFailure(f"nothing is kept under {handle!r}", code=Code.NOT_FOUND) from None
        except StoreUnavailable as error:
            raise ToolFailure(str(error), code=Code.UNAVAILABLE) from None
        if isinstance(bodies, KeptBodies) and context is not _NOWHERE:
            for place in await bodies.untrusted_sources(handle, context.turn_id):
                context.read_from(place)
        return _page(handle, offset, body, limit)

    return more


def _has(result: ToolResult, handle: str) -> bool:
    """Whether a result has this body, or says where it is."""
    return result.name != MORE and (result.handle == handle or handle in result.text)


def _page(handle: str, offset: int, body: bytes, limit: int) -> ToolOutput:
    start = next((at for at in range(min(4, len(body))) if not _continues(body[at])), 0)
    end = len(body)
    if end > limit:
        end = next((at for at in range(limit, limit - 4, -1) if not _continues(body[at])), limit)
    following = offset + end if end < len(body) else None
    text = visible(body[start:end].decode("utf-8", "replace"))
    where = f"[bytes {offset + start:,} to {offset + end:,} of {handle}; "
    goes_on = "this is the end]" if following is None else f"there is more at offset {following}]"
    structured: MoreOutput = {"handle": handle, "text": text, "offset": offset + start, "next_offset": following}
    return ToolOutput((Text(f"{text}\n{where}{goes_on}"),), structured)


def _continues(byte: int) -> bool:
    """Whether a byte of UTF-8 lies inside a character."""
    return byte & 0xC0 == 0x80
