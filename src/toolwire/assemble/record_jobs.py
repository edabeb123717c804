"""What a process that runs turns does about records beside: schedules that fire, and specialist agents that wake."""

from collections.abc import Callable

from toolwire.assemble.background_turns import begin_scheduled, begin_specialist
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.records import record_service
from toolwire.breadcrumbs.scheduler import ScheduledWork, Scheduler
from toolwire.breadcrumbs.specialists import Specialists, SpecialistWork
from toolwire.record.contract import Store
from toolwire.task_groups import TaskGroup


class RecordJobs:
    """The schedules and specialists of one project. `wake` hears of each turn that was begun."""

    def __init__(self, project: ProjectFolder, store: Store, wake: Callable[[], None]) -> None:
        records = self._records = record_service(project, store)

        async def begin_firing(work: ScheduledWork) -> None:
            await begin_scheduled(project, store, work)
            wake()

        async def begin_task(work: SpecialistWork) -> None:
            await begin_specialist(project, store, work)
            wake()

        self.scheduler = Scheduler(records, begin_firing)
        self.specialists = Specialists(records, store, begin_task)

    async def run_forever(self) -> None:
        """Do both until canceled."""
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self.scheduler.run_forever(), name="toolwire-schedules")
                tasks.create_task(self.specialists.run_forever(), name="toolwire-specialists")
        finally:
            self.close()

    def close(self) -> None:
        """End what shows records to models."""
        self._records.close()

    async def run_once(self) -> bool:
        """Do what is due now; whether there was anything."""
        before = self.scheduler.published
        await self.scheduler.fire_due()
        return await self.specialists.look() or self.scheduler.published > before
