"""Questions that are asked while another one is being answered, put together into one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key")
Found = TypeVar("Found")


class BatchedReads(Generic[Key, Found]):
    """Looks things up by their keys. One question at a time is on its way; those that come meanwhile go together."""

    def __init__(self, ask: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Found]]]) -> None:
        self._ask = ask
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Key, list[asyncio.Future[Found | None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: Key) -> Found | None:
        """What is kept under a key. Raises as the question does."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._task is not None and not self._task.done():  # another loop is at it
                return (await self._ask([key])).get(key)
            self._loop, self._waiting = loop, {}
        answer: asyncio.Future[Found | None] = loop.create_future()
        self._waiting.setdefault(key, []).append(answer)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="toolwire-batched-reads")
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            try:
                found = await self._ask(list(waiting))
            except Exception as error:
                for answers in waiting.values():
                    _tell(answers, error)
            except BaseException:
                for answers in (*waiting.values(), *self._waiting.values()):
                    for answer in answers:
                        answer.cancel()
                raise
            else:
                for key, answers in waiting.items():
                    for answer in answers:
                        if not answer.done():
                            answer.set_result(found.get(key))


def _tell(answers: Sequence["asyncio.Future[Found | None]"], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
