"""Going on with a turn on record: the command for it, and whether what it waits for is still granted."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from toolwire.agent import Agent
from toolwire.assemble.resumed_specs import with_own_grants
from toolwire.cli.terminal.text import one_line
from toolwire.decide.policy import grant_of_resumed
from toolwire.errors import CannotResume, Fenced, SettingsError
from toolwire.hub.resuming import require_still_granted as still_granted
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import Turn, TurnKind
from toolwire.record.contract import Store
from toolwire.record.projects import DEFAULT

_MOST_SHOWN = 2_000


def resume_command(verb: str, turn_id: str, flags: Mapping[str, Any]) -> str:
    """The command that goes on with a turn, with these flags as far as they were given."""
    return shlex.join(["toolwire", verb, "--resume", turn_id, *flag_words(flags)])


def resume_command_of(turn: Turn, now: Grant, home: str | None = None) -> str:
    """The same for a turn on record: with what it began with and does not carry itself, and what it needs since."""
    now = with_own_grants(now, turn.spec)
    needed = {flag: _beyond(flag, value, turn.flags) for flag, value in _granting(turn.grant, now).items()}
    flags = {"--project": named_project(turn.project), "--home": home, **needed}
    line = resume_command("call" if turn.kind is TurnKind.CALL else "ask", turn.id, flags)
    return f"{line} {shlex.join(turn.flags)}" if turn.flags else line


async def turn_to_resume(store: Store, turn_id: str) -> Turn:
    """How a turn began that has not ended. Raises NotFound, and Fenced with what came of one that has.

    A runner may have gone on with it meanwhile: a user who types the printed command then still wants the outcome.
    """
    kept = await store.turn(turn_id)
    if kept.state != "ended":
        return kept.opening
    cards = await store.calls(turn_id=turn_id, limit=1) if kept.opening.kind is TurnKind.CALL else []
    results = [card.result.text for card in cards if card.result is not None]
    said = results[0] if results else kept.ending.answer if kept.ending is not None else ""
    outcome = f" Its outcome on record: {one_line(said, _MOST_SHOWN)}" if said.strip() else ""
    raise Fenced(f"turn {turn_id!r} has ended; begin a new one.{outcome}")


def _beyond(flag: str, value: Any, flags: tuple[str, ...]) -> Any:
    """What of a flag's value the flags do not say already."""
    if flag == "--allow":
        return [one for one in value if one not in flags]
    return None if flag in flags else value


def named_project(project: str) -> str | None:
    """What `--project` has to say; nothing for the default one."""
    return None if project == DEFAULT else project


def project_words(project: str, home: str | None = None) -> str:
    """The flags that say which project a command is about, and where its record lies; none for the usual ones."""
    words = shlex.join(flag_words({"--project": named_project(project), "--home": home}))
    return f" {words}" if words else ""


def granting_flags(
    tools: str | None, tier: str | None, allow: list[str] | None, root: list[str] | None, *, yes: bool
) -> dict[str, Any]:
    """The flags that give a turn more than the settings do, as far as they were given."""
    return {"--tools": tools, "--tier": tier, "--allow": allow, "--root": root, "--yes": yes}


def flag_words(flags: Mapping[str, Any]) -> Iterator[str]:
    """Flags as they are typed, as far as they have a value."""
    for flag, value in flags.items():
        if value is True:
            yield flag
        elif isinstance(value, str) and value:
            yield from (flag, value)
        elif isinstance(value, list):
            yield from (word for each in value for word in (flag, each))


def _granting(had: Grant, now: Grant) -> Mapping[str, Any]:
    left = grant_of_resumed(had, now)
    return {
        "--tier": had.tier.name.lower() if had.tier > left.tier else None,
        "--allow": sorted(had.permissions - left.permissions),
        "--root": list(had.roots) if had.roots != left.roots else None,
    }


async def require_still_granted(agent: Agent, turn_id: str, home: str | None = None) -> None:
    """Raise SettingsError where a call that waits could not run for want of a grant or a tool; with what to type."""
    had = (await agent.store.turn(turn_id)).opening
    try:
        await still_granted(agent.store, had, agent.toolbox, agent.grant)
    except CannotResume as lost:
        raise SettingsError(
            f"{lost.tool!r} waits in turn {turn_id}, and {lost.reason}. Nothing was run. "
            f"To go on with it: {resume_command_of(had, agent.grant, home)}\n"
            f"To end the turn instead: toolwire run --cancel {turn_id}{project_words(had.project, home)}"
        ) from None
