"""`toolwire logs`: the audit log, as it is or as it grows."""

import asyncio
from typing import Annotated

import typer

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.ids import find_turn_id
from toolwire.cli.resolve.options import AsJson, Home, NoColor, Project, complete_turn
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.json_output import plain
from toolwire.cli.terminal.screen import Screen, write_json
from toolwire.cli.views.audit_line import row_line
from toolwire.errors import SettingsError
from toolwire.protocol.records import AuditRow
from toolwire.record.contract import Store

POLL_S = 0.5
_PAGE = 1_000
_NO_FITTING_ROWS = "The audit log has no rows for this; a turn without calls leaves none."


def logs(
    filter_: Annotated[
        str | None, typer.Option("--filter", metavar="KIND", help="Only rows of this kind: tool (about calls) or turn.")
    ] = None,
    turn: Annotated[
        str | None, typer.Option("--turn", metavar="ID", help="Only this turn.", autocompletion=complete_turn)
    ] = None,
    tool: Annotated[str | None, typer.Option("--tool", metavar="NAME", help="Only this tool.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="The newest N rows.", min=1)] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on showing rows as they are written.")] = False,
    project: Project = "default",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Show the audit log, oldest row first. With --json: one list, or with --follow one object a line."""
    if filter_ not in (None, "tool", "turn"):
        raise SettingsError(f"--filter {filter_!r} is unknown; choose tool or turn")
    place = current_project({"store.home": home}, project=project)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    wanted = _LogFilter(filter_, turn, tool)
    if follow:
        try:
            run_sync(_follow(place, screen, wanted, limit, as_json=as_json))
        except KeyboardInterrupt:  # the only way to end it, so nothing needs to be said
            return Exit.INTERRUPTED
    rows = run_sync(_read(place, wanted, limit))
    if as_json:
        screen.json(plain(rows))
    else:
        _show(screen, rows)
        if not rows:
            fits_none = wanted.narrow and place.store_exists
            screen.tell(_NO_FITTING_ROWS if fits_none else "Nothing is on record yet.", "dim")
    return Exit.DONE


class _LogFilter:
    def __init__(self, kind: str | None, turn_id: str | None, tool: str | None) -> None:
        self.turn_id = turn_id
        self.tool = tool
        self.narrow = bool(kind or turn_id or tool)
        self._kind = kind

    async def find(self, store: Store) -> None:
        """Put the whole id in the place of a part of it."""
        if self.turn_id:
            self.turn_id = await find_turn_id(store, self.turn_id)

    def of(self, rows: list[AuditRow]) -> list[AuditRow]:
        if self._kind is None:
            return rows
        return [row for row in rows if bool(row.call_id) == (self._kind == "tool")]


async def _read(place: ProjectFolder, wanted: _LogFilter, limit: int) -> list[AuditRow]:
    if not place.store_exists:
        return []
    async with store_of(place, only_reads=True) as store:
        await wanted.find(store)
        rows = await store.audit_log(turn_id=wanted.turn_id, tool=wanted.tool, limit=max(limit, _PAGE))
        if wanted.turn_id and not rows:
            await store.turn(wanted.turn_id)  # an unknown turn is an error, a quiet one is not
    return wanted.of(rows)[-limit:]


async def _follow(place: ProjectFolder, screen: Screen, wanted: _LogFilter, limit: int, *, as_json: bool) -> None:
    """Until Ctrl-C. New rows are found by asking the store, so it works across processes."""
    async with store_of(place, only_reads=True) as store:
        await wanted.find(store)
        rows, seen = await store.audit_log(turn_id=wanted.turn_id, tool=wanted.tool, limit=limit), 0
        while True:
            seen = rows[-1].seq if rows else seen
            if as_json:
                for row in wanted.of(rows):
                    write_json(plain(row))
            else:
                _show(screen, wanted.of(rows))
            if len(rows) < _PAGE:  # all that is there was shown
                await asyncio.sleep(POLL_S)
            rows = await store.audit_log(turn_id=wanted.turn_id, tool=wanted.tool, limit=_PAGE, after=seen)


def _show(screen: Screen, rows: list[AuditRow]) -> None:
    for row in rows:
        screen.out.print(row_line(row), soft_wrap=True)
