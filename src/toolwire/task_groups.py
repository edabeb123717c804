"""Task groups that leave the task around them as it was, which those of Python do from 3.13 on."""

import asyncio
from types import TracebackType


class TaskGroup(asyncio.TaskGroup):
    """Takes back what it asked of its own task.

    A group whose task fails cancels the task that waits for it. Before Python 3.13 that stays counted there, and before
    3.11.5 a later `asyncio.timeout` of that task then ends it as canceled instead of raising TimeoutError.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        counted = task.cancelling()
        asked_before = self._has_asked()
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            if self._has_asked() and not asked_before and task.cancelling() > counted:
                task.uncancel()

    def _has_asked(self) -> bool:
        return bool(getattr(self, "_parent_cancel_requested", False))
