"""What a process that serves or runs a project does for its records: deliveries to webhooks, and expiry."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.records import record_roles, record_service
from toolwire.breadcrumbs.hygiene import expire_forever, expire_once
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.webhooks import Webhooks
from toolwire.errors import ToolwireError
from toolwire.execute.egress.caps import MIB, Caps
from toolwire.execute.egress.places import BadUrl, read_url
from toolwire.execute.webhook import PostOutcome, post_signed, web_for_hook
from toolwire.record.contract import Store
from toolwire.task_groups import TaskGroup

_LOOK_S = 1.0
_log = logging.getLogger("toolwire.records")
HOOK_CAPS = Caps(at_once=1, opened=1, down_bytes=64 * 1024, up_bytes=8 * MIB, head_s=5.0, whole_s=10.0)


class RecordUpkeep:
    """The webhooks and the expiry of one project. `user` is the one who writes its records at the terminal."""

    def __init__(self, project: ProjectFolder, store: Store, user: str, clock: Callable[[], float] = time.time) -> None:
        self._project = project
        self._user = user
        self.store = store
        self._clock = clock
        self.records = record_service(project, store)
        self.webhooks = Webhooks(self.records, store, self._post, self.caller_of, clock=clock)

    async def run_forever(self) -> None:
        """Do both until canceled."""
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self.webhooks.run_forever(), name="toolwire-webhooks")
                tasks.create_task(expire_forever(self.store, self._project.name), name="toolwire-hygiene")
        finally:
            self.close()

    def close(self) -> None:
        """End what the records hold open."""
        self.records.close()

    async def run_once(self) -> None:
        """Do what is due now."""
        await expire_once(self.store, self._project.name)
        try:
            while await self.webhooks.step():
                pass
        finally:
            await self.webhooks.release()

    def caller_of(self, name: str) -> Caller | None:
        """The author of a subscription with the role that it has now: that of its token, or that of the user."""
        role = record_roles(self._project).get(name)
        if role is None and name == self._user:
            role = Role.ADMIN
        return None if role is None else Caller(name, role)

    async def _post(self, url: str, delivery: str, body: bytes, keys: Sequence[bytes]) -> PostOutcome:
        try:
            place = read_url(url)
        except BadUrl as wrong:
            return PostOutcome(str(wrong), is_refused=True)
        hosts = self._project.settings.records.webhook_hosts
        web = web_for_hook(place, hosts, "records.webhook_hosts", HOOK_CAPS)
        return await post_signed(web, place, delivery, body, keys, self._clock())


OpenStore = Callable[[], AbstractAsyncContextManager[Store | None]]


@asynccontextmanager
async def keeping_up(project: ProjectFolder, open_store: OpenStore, user: str) -> AsyncIterator[None]:
    """Within the block, the records of a project are looked after, once there is a store, and whichever it is then."""
    work = asyncio.create_task(_keep_up(project, open_store, user), name="toolwire-record-upkeep")
    try:
        yield
    finally:
        await _end(work)


async def _keep_up(project: ProjectFolder, open_store: OpenStore, user: str) -> None:
    current: tuple[Store, asyncio.Task[None]] | None = None
    try:
        while True:
            with suppress(ToolwireError):  # a store that is away is told by what needs it
                async with open_store() as store:
                    if current is not None and (store is not current[0] or current[1].done()):
                        await _end(current[1])
                        current = None
                    if current is None and store is not None:
                        upkeep = RecordUpkeep(project, store, user)
                        current = store, asyncio.create_task(upkeep.run_forever(), name="toolwire-records")
            await asyncio.sleep(_LOOK_S)
    finally:
        if current is not None:
            await _end(current[1])


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("records were not looked after: %s", error)
