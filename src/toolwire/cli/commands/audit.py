"""`toolwire audit`: whether the audit log is whole, and signed checkpoints of it for keeping elsewhere."""

import time
from pathlib import Path
from typing import Annotated

import typer

from toolwire.agent import run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.cli.entry.command import LOOK, CliCommand, Group
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, Home, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import quantity
from toolwire.errors import NotFound, SettingsError
from toolwire.record.chain import AuditChain
from toolwire.record.checkpoints import Checkpoint, append_whole, faults, read, sign

audit = typer.Typer(**LOOK, cls=Group, help="Check that the audit log is whole, or sign how far it has come.")


@audit.command("verify", cls=CliCommand)
def verify(
    checkpoints: Annotated[
        Path | None, typer.Option("--checkpoints", metavar="FILE", help="Checkpoints that were kept elsewhere.")
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="HEX", help="The public key to trust, if not the first checkpoint's.")
    ] = "",
    home: Home = None,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Walk along the whole log. Exit code 1 when a row was changed, removed or added."""
    place = _place(home)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    kept = read(checkpoints) if checkpoints else []
    chain = run_sync(_chain(place, [one.seq for one in kept]))
    wrong = [] if chain.broken_at is None else [f"row {chain.broken_at} does not fit the rows before it"]
    wrong += faults(kept, chain, key)
    if as_json:
        screen.json(
            {
                "whole": not wrong,
                "rows": chain.rows,
                "dropped": chain.dropped,
                "head": chain.head,
                "writers": len(chain.writers),
                "checkpoints": len(kept),
                "faults": wrong,
                "clock_set_back_at": chain.set_back_at,
            }
        )
    else:
        _tell(screen, chain, kept, wrong)
    return Exit.FAILED if wrong else Exit.DONE


@audit.command("checkpoint", cls=CliCommand)
def checkpoint(
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="Append it to this file, best on another machine.")
    ] = None,
    home: Home = None,
) -> Exit:
    """Sign how far the log has come. Keep the line where users of this machine cannot change it."""
    place = _place(home)
    chain = run_sync(_chain(place, [], only_reads=False))
    if chain.broken_at is not None:
        raise SettingsError(f"row {chain.broken_at} does not fit the rows before it; a broken log is not signed")
    line = sign(place.home, chain, time.time()).line()
    if to is None:
        typer.echo(line)
        return Exit.DONE
    try:
        append_whole(to, f"{line}\n".encode())
    except OSError as wrong:
        raise SettingsError(f"{to} cannot be written: {wrong.strerror}") from None
    return Exit.DONE


def _place(home: str | None) -> ProjectFolder:
    place = current_project({"store.home": home})
    if not place.store_exists:
        raise NotFound(f"there is no store in {place.home}, so there is no audit log yet")
    return place


async def _chain(place: ProjectFolder, seqs: list[int], *, only_reads: bool = True) -> AuditChain:
    async with store_of(place, only_reads=only_reads) as store:
        return await store.audit_chain(seqs)


def _tell(screen: Screen, chain: AuditChain, kept: list[Checkpoint], wrong: list[str]) -> None:
    if chain.set_back_at is not None:
        screen.tell(f"Row {chain.set_back_at} is older than rows before it: the clock was set back there.", "yellow")
    for sentence in wrong:
        screen.tell(sentence[0].upper() + sentence[1:] + ".", "red")
    if wrong:
        return
    rows = quantity(chain.rows, "row")
    screen.tell(f"The log is whole: {rows}, the newest has digest {chain.head[:16] or 'none'}.", "green")
    if chain.dropped:
        pruned = quantity(chain.dropped, "row")
        screen.tell(f"Pruned before these: {pruned}; where the log was cut is signed.", "yellow")
    if chain.unchained:
        older = quantity(chain.unchained, "row")
        screen.tell(f"Older than the chain, and not covered: {older}.", "yellow")
    told = (
        f"It fits {quantity(len(kept), 'checkpoint')}."
        if kept
        else "A cut tail would not show: compare with --checkpoints FILE."
    )
    screen.tell(told, "green" if kept else "yellow")
