"""One store kept open for as long as a server runs: opening it for each request takes a hundred times as long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.state_ownership import STORE_FILE
from toolwire.assemble.stores import store_of
from toolwire.record.contract import Store


class KeptStore:
    """The store of a project, opened when it is first used. One that was replaced on disk meanwhile is opened anew."""

    def __init__(self, project: ProjectFolder) -> None:
        self._project = project
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._identity: tuple[int, int] | None = None
        self._stop = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Store | None]:
        """The store for one request; None while there is none."""
        yield await self._current() if self._project.store_exists else None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Store]:
        """The store for one request, made where there is none."""
        yield await self._current()

    async def close(self) -> None:
        """Let go of it. Harmless when called twice."""
        if (holder := self._holder) is not None:
            self._stop.set()
            await asyncio.wait((holder,))
            self._holder = self._store = None

    async def _current(self) -> Store:
        async with self._opening:
            identity = self._on_disk()
            if self._store is None or identity != self._identity:
                await self.close()
                self._store = await self._open()
                # One that was made just now is not taken for another by the next who asks.
                self._identity = identity or self._on_disk()
            return self._store

    def _on_disk(self) -> tuple[int, int] | None:
        try:
            found = (self._project.home / STORE_FILE).stat()
        except OSError:  # it lies elsewhere, or is just being replaced
            return None
        return found.st_dev, found.st_ino

    async def _open(self) -> Store:
        self._stop = asyncio.Event()
        opened: asyncio.Future[Store] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(opened), name="toolwire-store")
        return await opened

    async def _hold(self, opened: asyncio.Future[Store]) -> None:
        """A task of its own opens and closes the store: the request that needed it first is over long before."""
        try:
            async with store_of(self._project) as store:
                opened.set_result(store)
                await self._stop.wait()
        except Exception as error:  # it belongs to the request that opened the store
            if opened.done():
                raise
            opened.set_exception(error)
