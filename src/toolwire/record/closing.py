"""Stores that are closed at the end of a block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ClosingStore(ABC):
    """`async with store:` closes it in the end."""

    @abstractmethod
    async def close_store(self) -> None:
        """Let go of everything that the store holds."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_store()
