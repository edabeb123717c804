"""`toolwire ask`: a question, a model, tools, and an answer."""

import json
from collections.abc import Coroutine
from time import perf_counter
from typing import Annotated, Any

import typer

from toolwire.agent import Answer, run_sync
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.cli.entry.command import Interrupted
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.agents import (
    ENDED_WELL,
    Flags,
    begin_agent,
    how_to_answer,
    newest_interrupted,
    require_turn_id,
    resume_agent,
    show_record,
    show_summary,
)
from toolwire.cli.resolve.ids import find_turn_id
from toolwire.cli.resolve.options import (
    Allow,
    AsJson,
    BaseUrl,
    Deadline,
    Groups,
    Home,
    Iterations,
    KeyEnv,
    Model,
    NoColor,
    NoTools,
    Profile,
    Project,
    Record,
    Replay,
    ResultSchema,
    Resume,
    Root,
    Stdin,
    Step,
    Stream,
    System,
    Thread,
    Tier,
    Tokens,
    Yes,
    complete_resumed,
)
from toolwire.cli.resolve.options import Trace as TraceFlag
from toolwire.cli.resolve.resuming import resume_command_of, turn_to_resume
from toolwire.cli.resolve.worker_wait import WorkerWait
from toolwire.cli.terminal.input import FIRST_BYTE_S, SilentInput, decode_text, read_piped
from toolwire.cli.terminal.json_output import turn_object
from toolwire.cli.terminal.screen import Screen, quiet_tools
from toolwire.cli.views.events import Trace
from toolwire.cli.views.prompts import TerminalUser
from toolwire.cli.views.watch import Watcher, Watchers
from toolwire.errors import ModelError, SettingsError, StoreUnavailable, Suspended
from toolwire.protocol.attached_text import attach
from toolwire.protocol.turns import WORKFLOW_MODEL, TurnKind

LARGEST_QUESTION = 1024 * 1024

Question = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION",
        help="The question; piped text is sent along, or is the question where there is none (or -). "
        "With --resume: a turn's id.",
        autocompletion=complete_resumed,
    ),
]


def ask(
    question: Question = None,
    model: Model = None,
    base_url: BaseUrl = None,
    key_env: KeyEnv = None,
    profile: Profile = None,
    resume: Resume = False,
    thread: Thread = "",
    system: System = "",
    result_schema: ResultSchema = None,
    tools: Groups = None,
    no_tools: NoTools = False,
    tier: Tier = None,
    allow: Allow = None,
    root: Root = None,
    yes: Yes = False,
    step: Step = False,
    iterations: Iterations = None,
    deadline: Deadline = None,
    tokens: Tokens = None,
    record: Record = None,
    replay: Replay = None,
    project: Project = "default",
    home: Home = None,
    stdin: Stdin = None,
    no_stream: Stream = False,
    trace: TraceFlag = False,
    as_json: AsJson = False,
    no_color: NoColor = False,
) -> Exit:
    """Answer a question with a model and tools.

    The answer goes to standard output as it is written, everything else to standard error. Text that is piped in is
    sent along with the question: git diff | toolwire ask "Review this". A turn that was interrupted goes on
    with --resume, with its own limits, and with what both its own grant and the one of now
    allow: no call that has a result runs again.
    """
    flags = Flags(
        model=model, base_url=base_url, profile=profile, home=home, record=record, replay=replay, tier=tier, root=root,
        allow=allow or [], yes=yes, iterations=iterations, deadline=deadline, tokens=tokens, no_tools=no_tools,
        step=step, system=system, project=project, tools=tools, key_env=key_env, result_schema=result_schema,
    )  # fmt: skip
    words = require_turn_id(question) if resume else read_question(question, stdin=stdin, as_json=as_json)
    place = flags.place(asks=not resume)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    began = perf_counter()
    with Watcher(screen, streams=not no_stream) as watcher:
        shown = [Trace(screen, as_json=as_json)] if trace else []
        waits = [WorkerWait(screen, place, home)] if place.uses_bus() else []
        watchers = Watchers(*shown, *waits, *([] if as_json else [watcher]))
        with quiet_tools(as_json=as_json):
            work = _ask_or_resume(flags, place, screen, watchers, words, thread=thread, resume=resume)
            answer = _run_turn(flags, place, watchers, work, resume=resume)
    elapsed_ms = (perf_counter() - began) * 1000
    if as_json:
        screen.json({**turn_object(answer.turn), "elapsed_ms": round(elapsed_ms, 3), "home": str(place.home)})
    else:
        show_summary(screen, answer, elapsed_ms)
        show_record(screen, place, answer.turn.id, home)
    return Exit.DONE if _ended_well(answer) else Exit.FAILED


def _ended_well(answer: Answer) -> bool:
    """A workflow that was resumed says in its report whether steps have failed."""
    if answer.reason not in ENDED_WELL or answer.turn.model != WORKFLOW_MODEL:
        return answer.reason in ENDED_WELL
    try:
        return not json.loads(answer.text)["errors"]
    except ValueError:
        return False


def read_question(words: str | None, *, stdin: bool | None, as_json: bool) -> str:
    """The question from the command line, with what was piped in. Raises SettingsError when there is none."""
    if words == "-":
        words, stdin = None, True
    question = (words or "").strip()
    piped = "" if stdin is False else _read_pipe(patient=stdin is True, as_json=as_json)
    if not question and not piped.strip():
        raise SettingsError('there is no question; write for example: toolwire ask "What is 23 * 19?"')
    if not question:
        return piped.strip()
    return attach(question, piped.rstrip()) if piped.strip() else question


def _read_pipe(*, patient: bool, as_json: bool) -> str:
    """What was piped in; nothing where a pipe stays silent, which is told."""
    try:
        return decode_text(read_piped(LARGEST_QUESTION, patient=patient))
    except SilentInput:
        if not as_json:
            typer.echo(
                f"Nothing was piped in within {FIRST_BYTE_S:g} s, so standard input is left alone "
                "(--stdin waits for it, --no-stdin does not look).",
                err=True,
            )
        return ""


def _run_turn(
    flags: Flags, place: ProjectFolder, watchers: Watchers, work: Coroutine[Any, Any, Answer], *, resume: bool
) -> Answer:
    """The turn from beginning to end; whatever stops it halfway says how to go on."""
    try:
        return run_sync(work)
    except KeyboardInterrupt:
        if not watchers.turn_id:
            raise
        line = flags.resume_line(watchers.turn_id, resumes=resume)
        raise Interrupted(f"Interrupted. Go on with: {line}") from None
    except Suspended as waits:
        raise waits.saying(
            f"{how_to_answer(waits, flags.project, flags.home)}\n"
            f"Then go on with: {flags.resume_line(waits.turn_id, resumes=resume)}"
        ) from None
    except (ModelError, StoreUnavailable) as error:
        if not watchers.turn_id or not place.settings.store.lasts:
            raise
        line = flags.resume_line(watchers.turn_id, resumes=resume)
        raise type(error)(f"{error}\nThe turn is kept; go on with: {line}") from error


async def _ask_or_resume(
    flags: Flags,
    place: ProjectFolder,
    screen: Screen,
    watchers: Watchers,
    words: str | None,
    *,
    thread: str,
    resume: bool,
) -> Answer:
    async with store_of(place) as store:
        if not resume:
            async with begin_agent(flags, place, store, TerminalUser(screen, agrees=flags.yes)) as agent:
                return await agent.ask(words or "", thread=thread, on_event=watchers)
        turn_id = await find_turn_id(store, words) if words else await newest_interrupted(store, single_call=False)
        opening = await turn_to_resume(store, turn_id)
        if opening.kind is TurnKind.CALL:
            line = resume_command_of(opening, opening.grant, flags.home)
            raise SettingsError(f"turn {turn_id} is a single call; go on with: {line}")
        async with resume_agent(flags, place, store, screen, opening) as agent:
            return await agent.resume(turn_id, on_event=watchers)
