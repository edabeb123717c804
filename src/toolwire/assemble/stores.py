"""The store of a project, opened as its settings say."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

from toolwire.assemble.project import ProjectFolder, process_metrics, secret_in
from toolwire.assemble.state_ownership import require_own
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.record.projects import ProjectStore, of_project
from toolwire.record.retention import KeepLimits, Retention
from toolwire.record.sqlite import SqliteStore
from toolwire.settings.schema import RetentionSettings

if TYPE_CHECKING:
    from toolwire.record import libsql, memory, postgres, upkeep
    from toolwire.telemetry import store_metrics
else:
    memory = lazy_module("toolwire.record.memory")
    libsql = lazy_module("toolwire.record.libsql")
    postgres = lazy_module("toolwire.record.postgres")
    upkeep = lazy_module("toolwire.record.upkeep")
    store_metrics = lazy_module("toolwire.telemetry.store_metrics")


@asynccontextmanager
async def store_of(
    project: ProjectFolder, *, only_reads: bool = False, prunes: bool = True
) -> AsyncIterator[ProjectStore]:
    """The project's view of the store of the settings, closed at the end. What it no longer keeps goes meanwhile.

    State that another maker left is opened only to be read.
    """
    if not only_reads:
        await require_own_state(project)
    if not project.settings.store.lasts:
        yield of_project(memory.MemoryStore(), project.name)
        return
    store = await _open_store(project)
    for counted in process_metrics:
        store_metrics.measure_store(store, counted)
    try:
        async with _pruned(project) if prunes and not only_reads else nullcontext():
            yield of_project(store, project.name)
    finally:
        await store.close_store()


def _pruned(project: ProjectFolder) -> AbstractAsyncContextManager[object]:
    """What prunes the store in the background; nothing does where the settings say nothing of it."""
    chosen = project.settings.retention
    if chosen == RetentionSettings():
        return nullcontext()
    return upkeep.pruned_in_background(partial(_open_store, project), project.home, retention_of(chosen))


async def _open_store(project: ProjectFolder) -> SqliteStore:
    chosen = project.settings.store
    if chosen.in_server:
        return await _server_store(project)
    return await SqliteStore.at(project.home, lease_s=chosen.lease_s, bodies=chosen.bodies or "folder")


def retention_of(chosen: RetentionSettings) -> Retention:
    """What the settings say about how long the record is kept."""
    return Retention(
        turns=_keep(chosen.turns_days, chosen.turns_mb),
        audit=_keep(chosen.audit_days, chosen.audit_mb),
        bodies=_keep(chosen.bodies_days, chosen.bodies_mb),
        logs=_keep(chosen.logs_days, chosen.logs_mb),
    )


def _keep(days: float | None, megabytes: float | None) -> KeepLimits:
    return KeepLimits(days, None if megabytes is None else int(megabytes * 1_000_000))


async def require_own_state(project: ProjectFolder) -> None:
    """Whatever the store is, tools keep pages and plans in the home. Raises SettingsError and StoreUnavailable."""
    makes = project.settings.store.kind == "sqlite"
    if makes or project.has_home:
        await require_own(project.home, project.environ, named=project.names_home, store=makes)


async def _server_store(project: ProjectFolder) -> SqliteStore:
    chosen = project.settings.store
    if chosen.url is None:
        raise SettingsError(f"store.kind = {chosen.kind} needs the address of the server: set store.url")
    key = secret_in(project.environ, chosen.token_env, "store.token_env") if chosen.token_env else ""
    bodies = chosen.bodies or "database"
    if chosen.kind == "libsql":
        return await libsql.LibsqlStore.on(
            chosen.url, project.home, token=key, lease_s=chosen.lease_s, bodies=bodies
        )  # fmt: skip
    try:
        kept_in = postgres.PostgresStore
    except ImportError as missing:
        raise SettingsError(f"PostgreSQL needs an extra: pip install 'toolwire[postgres]' ({missing})") from None
    return await kept_in.on(chosen.url, project.home, password=key, lease_s=chosen.lease_s, bodies=bodies)
