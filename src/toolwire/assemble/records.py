"""The records of a project, as its settings say: what is checked, and where the key of secrets lies."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

from toolwire.assemble.project import ProjectFolder
from toolwire.breadcrumbs.rules.callers import Role
from toolwire.breadcrumbs.sealing import KeyFile, Sealer
from toolwire.breadcrumbs.search import HybridSearch, open_embedding
from toolwire.breadcrumbs.service import RecordKeeper, RecordRules, RecordService


def record_service(project: ProjectFolder, store: RecordKeeper) -> RecordService:
    """The one way to a project's records."""
    chosen = project.settings.records
    keys = KeyFile(Path(chosen.key_file) if chosen.key_file else None)
    search = HybridSearch(store, partial(open_embedding, chosen.embedding, chosen.embedding_url or ""))
    rules = RecordRules(strict=chosen.strict, sealer=Sealer(keys, project.name), search=search)
    return RecordService(store, project.name, rules=rules)


class KeptRecords:
    """The records of a project for as long as a server runs, over a store that may be opened anew meanwhile."""

    def __init__(
        self, project: ProjectFolder, open_store: Callable[[], AbstractAsyncContextManager[RecordKeeper]]
    ) -> None:
        self._project = project
        self._open_store = open_store
        self._current: tuple[RecordKeeper, RecordService] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[RecordService]:
        """The records, for one request."""
        async with self._open_store() as store:
            if self._current is None or self._current[0] is not store:
                if self._current is not None:
                    self._current[1].close()
                self._current = store, record_service(self._project, store)
            yield self._current[1]


def record_roles(project: ProjectFolder) -> dict[str, Role]:
    """The roles of those tokens of the gateway that the settings name. One that is named twice has the greater role."""
    chosen = project.settings.records
    named = ((chosen.readers, Role.READER), (chosen.writers, Role.WRITER), (chosen.admins, Role.ADMIN))
    return {name: role for names, role in named for name in names}
