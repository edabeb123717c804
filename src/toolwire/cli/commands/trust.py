"""`toolwire trust`: the user's word for a project's settings file."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from toolwire.agent import run_sync
from toolwire.assemble.state_ownership import adopt_state, is_record, is_state, release
from toolwire.cli.commands.approvals import pattern_line
from toolwire.cli.entry.exits import Exit
from toolwire.cli.terminal.text import clean, distinct, one_line
from toolwire.errors import SettingsError
from toolwire.record.sqlite import SqliteStore
from toolwire.settings import forget, is_trusted, project_file, state_folder, trust_requests, user_folder
from toolwire.settings import trust as keep_word
from toolwire.toolbox.skills.catalog import FoundSkill, is_skill, read_skill

_KNOWN = ("HOME", "USERPROFILE")
_MOST_COUNTED = 10_000


def trust(
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="The project's folder; without it, the current one.")
    ] = None,
    take_back: Annotated[bool, typer.Option("--forget", help="Trust it no longer.")] = False,
) -> Exit:
    """Trust the toolwire.toml of a project, or a skill in a folder, as it is now.

    Tools that a project's file names, what it grants, and addresses it sets count only once it is trusted; the tools
    and instructions of a skill are offered only then. Neither holds any longer when something changes. A folder with
    a record, such as .toolwire, is trusted too: one of another maker is refused otherwise.
    """
    at = Path(folder or ".").absolute()
    if is_state(at):
        return _trust_record(at, take_back=take_back)
    if is_skill(at):
        return _trust_skill(at, take_back=take_back)
    file = project_file(at, user_folder())
    if file is None:
        raise SettingsError(f"there is no toolwire.toml of yours in {at} or above it")
    if take_back:
        forget(file, state_folder())
        typer.echo(f"{clean(str(file))} is not trusted.")
        return Exit.DONE
    environ = {name: os.environ[name] for name in _KNOWN if name in os.environ}
    requests = {request.file: request for request in trust_requests(at, environ, user_folder())}
    request = requests.pop(file)
    if request.wants:
        keep_word(file, request.digest, state_folder(), request.sources)
        typer.echo(f"{clean(str(file))} is trusted until it changes. It sets:\n{distinct(request.wants)}")
    else:
        typer.echo(f"{clean(str(file))} asks for nothing that needs trust.")
    for other in requests.values():
        if other.wants and not is_trusted(other.file, other.digest, {}, state_folder()):
            advice = f"run: toolwire trust {shlex.quote(str(other.file.parent))}"
            typer.echo(f"{clean(str(other.file))} counts here too and is not trusted yet; {clean(advice)}")
    return Exit.DONE


def _trust_record(home: Path, *, take_back: bool) -> Exit:
    if take_back:
        release(home)
        typer.echo(f"The record in {clean(str(home))} is not trusted.")
        return Exit.DONE
    adopt_state(home)
    contents = run_sync(_record_contents(home)) if is_record(home) else []
    typer.echo(f"The record in {clean(str(home))} is yours now: what it says was allowed counts.")
    for line in contents:
        typer.echo(f"  {line}")
    if any(line.startswith("active") for line in contents):
        typer.echo("Take one back with: toolwire approve ID --revoke")
    return Exit.DONE


async def _record_contents(home: Path) -> list[str]:
    """What a record brings that counts from now on: its turns, what is pending, and what is allowed beforehand."""
    async with await SqliteStore.at(home) as store:
        turns = await store.turns(limit=_MOST_COUNTED)
        pending = await store.approvals(only_open=True, limit=_MOST_COUNTED)
        active = await store.active_patterns(limit=_MOST_COUNTED)
    interrupted = sum(turn.state == "interrupted" for turn in turns)
    return [
        f"turns: {len(turns):,}, of which {interrupted:,} can be resumed",
        f"pending approvals: {len(pending):,}",
        *(f"active pattern approval {card.id}: {pattern_line(card)}" for card in active),
    ]


def _trust_skill(folder: Path, *, take_back: bool) -> Exit:
    found = read_skill(folder, lambda _file, _digest: False)
    if take_back:
        forget(found.file, state_folder())
        typer.echo(f"The skill {clean(found.skill.name)} is not trusted.")
        return Exit.DONE
    keep_word(found.file, found.folder.digest, state_folder())
    typer.echo(
        f"The skill {clean(found.skill.name)} is trusted until something in {clean(str(folder))} changes. It has:"
    )
    typer.echo("\n".join(_contents(found)))
    return Exit.DONE


def _contents(found: FoundSkill) -> Iterator[str]:
    """What one trusts: each program with what it may do, and the first words of the instructions."""
    for entry in found.skill.tools:
        needs = ", ".join(sorted(entry.tool.needs)) or "nothing but its arguments"
        programs = ", ".join(sorted(entry.program.binaries.values()))
        yield clean(f"  {entry.tool.name} {entry.tool.version}: runs {programs}, may use {needs}")
    if found.skill.instructions:
        yield f"  instructions: {one_line(found.skill.instructions, 100)}"
    yield f"  {len(found.folder.files)} files, sha256 {found.folder.digest}"
