"""The body of an HTTP response, read piece by piece and within a limit."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator

import httpx2

from toolwire.models.failures import FOREIGN, ProviderSite


class ResponseBody(ABC):
    """A body that is being read. Reading raises what `_too_large` and `_lost` give, and nothing else."""

    def __init__(self, response: httpx2.Response, place: ProviderSite, largest: int) -> None:
        self.media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._pieces: AsyncGenerator[bytes, None] = response.aiter_bytes()
        self._place = place
        self._first: bytes | None = None
        self._left = self._largest = largest

    @abstractmethod
    def _too_large(self) -> Exception:
        """What to raise for a body beyond the limit."""

    @abstractmethod
    def _lost(self, error: Exception) -> Exception:
        """What to raise where the connection broke."""

    async def first(self) -> bytes:
        """The bytes that come first; they are read again afterwards."""
        if self._first is None:
            self._first = await self.piece()
        return self._first

    async def piece(self) -> bytes:
        """The next bytes; empty at the end."""
        if self._first:
            first, self._first = self._first, b""
            return first
        try:
            async for piece in self._pieces:
                self._left -= len(piece)
                if self._left < 0:
                    raise self._too_large()
                if piece:
                    return piece
        except FOREIGN as lost:
            raise self._lost(lost) from None
        return b""

    async def whole(self) -> bytes:
        """Everything up to the end."""
        pieces: list[bytes] = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)
