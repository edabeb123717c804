"""What `ask`, `chat` and `call` share: an agent made from flags, and the lines around an answer."""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.agent import Agent, Answer
from toolwire.assemble.agents import open_agent
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.resumed_specs import project_again, resumed_spec
from toolwire.assemble.specs import spec_of
from toolwire.assemble.state_ownership import STORE_FILE
from toolwire.cli.resolve.project import current_project
from toolwire.cli.resolve.resuming import (
    granting_flags,
    named_project,
    project_words,
    require_still_granted,
    resume_command,
)
from toolwire.cli.terminal.input import read_bytes
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import duration, one_line, quantity
from toolwire.cli.views.prompts import TerminalUser
from toolwire.errors import DefinitionError, NotFound, SettingsError, Suspended
from toolwire.hub import submitting
from toolwire.models.opening import provider_of
from toolwire.protocol.agents import AgentSpec
from toolwire.protocol.turns import EndReason, Turn, TurnKind
from toolwire.record.contract import Store

MOST_TURNS = 1_000
_MOST_WAITS = 3
ENDED_WELL = {EndReason.ANSWERED, EndReason.DELIVERED}


class Flags(Struct, frozen=True):
    """The flags of one `ask` or `chat`, as they were given."""

    model: str | None = None
    base_url: str | None = None
    profile: str | None = None
    home: str | None = None
    record: str | None = None
    replay: str | None = None
    tier: str | None = None
    root: list[str] | None = None
    allow: list[str] = field(default_factory=list)
    yes: bool = False
    iterations: int | None = None
    deadline: float | None = None
    tokens: int | None = None
    no_tools: bool = False
    step: bool = False
    system: str = ""
    project: str = "default"
    tools: str | None = None
    key_env: str | None = None
    result_schema: str | None = None

    def place(self, *, asks: bool = False) -> ProjectFolder:
        """The settings with these flags on top. Raises SettingsError, also for flags that exclude each other.

        Where it `asks` the model of these settings, one of no known provider is refused here, before a store is made.
        """
        if self.record and self.replay:
            raise SettingsError(
                "--record keeps what a model says and --replay asks none, so there is nothing to record; leave one out"
            )
        if self.key_env == "":
            raise SettingsError("--key-env takes the name of an environment variable, such as MY_API_KEY; it is empty")
        found = current_project(self.settings, project=self.project)
        if asks and not self.replay:
            provider_of(found.settings.chosen().model)
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """What these flags say about settings."""
        return {
            "model": self.model,
            "profile": self.profile,
            "store.home": self.home,
            "tools.groups": self.tools,
            "grant.tier": self.tier,
            "grant.roots": self.root,
            "loop.iterations": self.iterations,
            "loop.deadline_s": self.deadline,
            "loop.tokens": self.tokens,
            "loop.enabled": False if self.no_tools else None,
        }

    def spec(self, project: ProjectFolder) -> AgentSpec:
        """What these flags and the settings of a project say about an agent."""
        spec = spec_of(
            project,
            project.settings.chosen(),
            base_url=self.base_url or "",
            key_env=self.key_env or "",
            replay=self.replay or "",
            allow=tuple(self.allow),
            confirms_all=self.yes,
        )
        return replace(spec, result_schema=_read_schema(self.result_schema)) if self.result_schema else spec

    @property
    def names_model(self) -> bool:
        """Whether they say which model is asked."""
        return bool(self.model or self.profile or self.replay)

    def resume_line(self, turn_id: str, *, resumes: bool = False) -> str:
        """The command that goes on with a turn: where its record is, and what the record does not keep.

        The record keeps the flags with which a turn began, and not those with which it was resumed.
        """
        url = self.base_url if self.base_url and (resumes or "@" in self.base_url) else None
        flags: dict[str, Any] = {
            "--project": named_project(self.project), "--home": self.home, "--base-url": url,
        }  # fmt: skip
        if resumes:
            flags |= {
                "--model": self.model, "--profile": self.profile, "--replay": self.replay, "--key-env": self.key_env,
                **granting_flags(self.tools, self.tier, self.allow, self.root, yes=self.yes),
            }  # fmt: skip
        return resume_command("ask", turn_id, flags)


_LARGEST_SCHEMA = 1024 * 1024


def _read_schema(path: str) -> str:
    """The JSON Schema in a file, as JSON. Raises SettingsError."""
    try:
        schema = json.loads(read_bytes(path, _LARGEST_SCHEMA))
        if not isinstance(schema, dict):
            raise ValueError("a JSON Schema is an object")
        submitting.submit_result_tool(schema)
    except RecursionError:
        raise SettingsError(f"--result-schema {path} is nested too deeply") from None
    except (ValueError, DefinitionError) as wrong:
        raise SettingsError(f"--result-schema {path}: {wrong}") from None
    except SettingsError as wrong:
        raise SettingsError(f"--result-schema: {wrong}") from None
    return json.dumps(schema, ensure_ascii=False)


def begin_agent(
    flags: Flags, project: ProjectFolder, store: Store, person: TerminalUser
) -> AbstractAsyncContextManager[Agent]:
    """An agent made from settings and flags, for new turns; closed at the end, while the store stays open."""
    return open_agent(
        project,
        store,
        person,
        flags.spec(project),
        system=flags.system,
        record=flags.record or "",
        intervene=person.intervene if flags.step else None,
    )


@asynccontextmanager
async def resume_agent(
    flags: Flags, project: ProjectFolder, store: Store, screen: Screen, turn: Turn
) -> AsyncIterator[Agent]:
    """The agent of a turn on record, made again. Raises SettingsError where a call that waits could not run."""
    again = project_again(turn, flags.settings, project)
    spec = resumed_spec(again, turn, flags.spec(again), other_model=flags.names_model)
    person = TerminalUser(screen, agrees=spec.granted.confirms_all)
    opening = open_agent(
        again,
        store,
        person,
        spec,
        resumes=turn,
        record=flags.record or "",
        intervene=person.intervene if flags.step else None,
    )
    async with opening as agent:
        await require_still_granted(agent, turn.id, flags.home)
        yield agent


def how_to_answer(waits: Suspended, project: str, home: str | None) -> str:
    """What to type so that a waiting turn can go on."""
    whose = project_words(project, home)
    if not waits.approvals:
        what = " and ".join(map(str, waits.waits[:_MOST_WAITS]))
        return f"This turn waits for {what}. `toolwire run{whose}` goes on with it, and with what it waits for."
    lines = [f"  toolwire approve {one}{whose}    (or --deny)" for one in waits.approvals]
    look = f"This turn is waiting for approval. Review it with `toolwire approvals{whose}`, and answer:"
    return "\n".join([look, *lines])


def require_turn_id(words: str | None) -> str | None:
    """The id after `--resume`; None stands for the newest turn. Raises SettingsError for an empty one."""
    if words is not None and not words.strip():
        raise SettingsError("the id after --resume is empty; leave it out to go on with the newest interrupted turn")
    return words


async def newest_interrupted(store: Store, *, single_call: bool) -> str:
    """The turn that `--resume` means without an id: of `call` a single call, of `ask` a question. Raises NotFound."""
    for turn in await store.turns(limit=MOST_TURNS, state="interrupted"):
        if (turn.kind is TurnKind.CALL) == single_call:
            return turn.id
    what = "call" if single_call else "turn"
    raise NotFound(f"there is no interrupted {what} to resume; `toolwire status` shows the turns on record")


def show_summary(screen: Screen, answer: Answer, elapsed_ms: float) -> None:
    """The dim line under an answer: what it took."""
    turn, usage = answer.turn, answer.usage
    if answer.reason not in ENDED_WELL:
        screen.tell(f"Stopped: {answer.reason.value.replace('_', ' ')}.", "yellow")
    parts = [
        one_line(turn.model, 40),
        quantity(turn.iterations, "step"),
        quantity(turn.calls, "call"),
        f"{usage.total_tokens:,} tokens" if usage.total_tokens else "",
        f"${usage.cost_usd:.4f}" if usage.cost_usd else "",
        duration(elapsed_ms),
    ]
    screen.tell(" · ".join(part for part in parts if part), "dim")


def show_record(screen: Screen, place: ProjectFolder, turn_id: str, home: str | None) -> None:
    """Where the record of a turn is, and the command that shows it."""
    if place.settings.store.kind == "sqlite":
        folder = place.home.relative_to(place.cwd) if place.home.is_relative_to(place.cwd) else place.home
        line = f"toolwire logs --turn {turn_id}{project_words(place.name, home)}"
        screen.tell(f"{line}  ({folder / STORE_FILE})", "dim")
