"""Runs tools for turns in other processes: takes commands from the bus, and everything else from the store.

A command only says which card to read. Whatever is wrong with one, nothing runs that the store does not ask for, and
the command is not delivered for ever: it is acknowledged, and what was wrong with it is on record. The store is away:
the command comes again.

The worker holds a call for as long as its store gives signs of life. After a `kill -9` its lease runs out, and
the relay sends the call again, or gives it up where running it twice could do harm.

A pure call begins at once, and is claimed with its result if that is there in a moment: one commit less.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from toolwire.bus.contract import Bus, Delivered
from toolwire.define.service_arguments import MissingVariable, with_environment
from toolwire.define.toolbox import Toolbox
from toolwire.deliver.endings import canceled_result, unknown
from toolwire.deliver.secrets import NO_SECRETS, Secret, Secrets
from toolwire.errors import (
    BusError,
    BusUnavailable,
    CallHeld,
    Fenced,
    NotFound,
    SettingsError,
    StoreError,
    StoreUnavailable,
)
from toolwire.execute.contract import Executor, RecordedResult
from toolwire.fleet.arrivals import arrival_note
from toolwire.fleet.fair_share import FairSlots
from toolwire.fleet.parcels import NO_ORIGIN, Parcel, call_card, read_parcel, turn_end, wakeup_message
from toolwire.fleet.progress import output_message, progress_message
from toolwire.hub.claimed import ClaimedJourney
from toolwire.hub.runtime import Runtime
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.events import CallProgress, Emit, Event, OutputDelta
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.subjects import BadSubject, Subject
from toolwire.protocol.tools import BusService, Effect, Tool
from toolwire.protocol.turns import Limits
from toolwire.record.contract import Store
from toolwire.record.projects import of_project
from toolwire.record.rows import new_id
from toolwire.wire.codecs.travelling import BadFrame, read_allowed
from toolwire.wire.utp.cards import call_card_violations
from toolwire.wire.utp.messages import CallOrigin, ToolCommand, decode_command
from toolwire.wire.utp.violations import Refusal, Violation

AT_ONCE = 16
QUICK_S = 0.05
"""How soon a pure call is claimed while it runs."""

RENEW_S = 2.0
"""How often a worker looks whether a call that it runs is still wanted, and tells the broker that it is at work."""

DRAIN_S = 30.0
_MOST_PROJECTS = 1_000
_RETRY_S = 1.0
_TELL_EVERY_S = 0.1
_ACK_WAIT_S = 30.0

_log = logging.getLogger(__name__)


class ProjectTools(Struct, frozen=True):
    """What the calls of one project are run with. No other project's calls see any of it.

    Arguments from the environment come from `environment`, which should hold no more than the tools need.
    """

    toolbox: Toolbox
    executor: Executor | None = None
    secrets: Secrets = NO_SECRETS
    environment: Mapping[str, str] = {}

    def __repr__(self) -> str:
        """Without the environment, which may have secrets in it."""
        return f"ProjectTools({', '.join(tool.name for tool in self.toolbox)})"


class ToolWorker:
    """Serves tools at a subject, such as `cg.v1r4.*.*.cmd.tool.search`, at most `at_once` calls at the same time.

    Workers with the same `durable` name share the commands. One that serves several projects is given `slots`, which
    it may share with others, and what each project's calls are run with, by `of_project`; that raises SettingsError.
    """

    def __init__(
        self,
        store: Store,
        bus: Bus,
        tools: Iterable[Tool],
        subject: str,
        *,
        durable: str,
        executor: Executor | None = None,
        secrets: Secrets = NO_SECRETS,
        environment: Mapping[str, str] | None = None,
        at_once: int = AT_ONCE,
        slots: FairSlots | None = None,
        of_project: Callable[[str], Awaitable[ProjectTools]] | None = None,
        renew_s: float = RENEW_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._bus = bus
        self._own = ProjectTools(Toolbox(*tools), executor, secrets, environment or {})
        self._of_project = of_project
        self._subject = subject
        self._durable = durable
        self._slots = slots or FairSlots(at_once)
        self._renew_s = renew_s
        self._clock = clock or store.clock
        self._runtimes: dict[str, tuple[ProjectTools, Runtime]] = {}
        self._telling_now: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self.running = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Take no more commands; `run` ends when those that were taken are done, or after its drain time."""
        self._stopping.set()

    async def run(self, drain_s: float = DRAIN_S) -> int:
        """Serve until `stop`. Gives how many calls were given up at the end of the drain time."""
        slots = self._slots
        async with self._bus.subscribe(
            self._subject, durable=self._durable, ack_wait_s=_ACK_WAIT_S, in_flight=slots.capacity
        ) as commands:
            await commands.take_handoffs(self._take_handoff)
            taking = asyncio.create_task(self._take(commands.__aiter__()), name="toolwire-commands")
            stopping = asyncio.create_task(self._stopping.wait(), name="toolwire-stop")
            keeping = asyncio.create_task(slots.keep_waiting(), name="toolwire-waiting")
            self.ready.set()
            try:
                await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
                if taking.done():
                    taking.result()
                slots.put_back()
                end = asyncio.get_running_loop().time() + drain_s
                await commands.drain(drain_s)
                # A command that was not acknowledged in time is the broker's again; its call may still be at work here.
                if self._tasks:
                    await asyncio.wait(self._tasks, timeout=max(end - asyncio.get_running_loop().time(), 0.0))
            finally:
                for task in (taking, stopping, keeping):
                    task.cancel()
                left = [task for task in self._tasks if not task.done()]
                for task in left:
                    task.cancel()
                await asyncio.gather(taking, stopping, keeping, *left, return_exceptions=True)
        return len(left)

    async def _take(self, commands: object) -> None:
        async for delivered in commands:  # type: ignore[attr-defined]
            self._slots.submit(_project_of(delivered.message), delivered, self._handle)

    def _take_handoff(self, delivered: Delivered) -> bool:
        """Begin a handed-over command if a slot is free for its project; another worker may have one otherwise."""
        project = _project_of(delivered.message)
        is_taken = self._slots.has_room(project) and not self._stopping.is_set()
        if is_taken:
            self._slots.submit(project, delivered, self._handle)
        return is_taken

    async def _handle(self, delivered: Delivered) -> None:
        """One command, whatever is wrong with it."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.running += 1
        try:
            await self._serve(delivered)
        except StoreUnavailable as error:
            _log.warning("a command is put back: %s", error)
            await delivered.nak(_RETRY_S)
        except asyncio.CancelledError:
            await delivered.nak()
            raise
        except Exception:
            # A command that breaks the worker would do so again: its call is sent again by the relay, with pauses.
            _log.exception("a command broke its worker")
            await delivered.ack()
        else:
            await delivered.ack()
        finally:
            self.running -= 1
            self._tasks.discard(task)

    async def _serve(self, delivered: Delivered) -> None:
        command = decode_command(delivered.message)
        if isinstance(command, Refusal):
            await self._refuse_message(delivered, command)
            return
        project = command.subject.project
        try:
            dispatch, card = await self._store.dispatched(command.tool_call_card_id, project=project)
            parcel = read_parcel(dispatch)
        except NotFound as missing:  # it has ended and was dropped, or there never was such a card
            _log.info("a command is dropped: %s", missing)
            return
        if violations := call_card_violations(command, call_card(parcel, dispatch, card)):
            await self._audit(card, "command_refused", violations)
            return
        if card.result is not None:
            await self._tell_of_result(card, command, parcel)
            return
        await self._claim_and_run(delivered, command, parcel, dispatch, card)

    async def _claim_and_run(
        self, delivered: Delivered, command: ToolCommand, parcel: Parcel, dispatch: Dispatch, card: CallCard
    ) -> None:
        asked = replace(card, epoch=command.turn_epoch)
        row = AuditRow.about(asked, "started", self._clock(), detail={"subject": dispatch.subject})
        begun: asyncio.Task[ToolResult] | None = None
        closed: RecordedResult | None = None
        if _may_begin_unclaimed(card, command):
            mine = replace(asked, attempt=1, token=new_id())
            begun = await self._begin(mine, parcel)
            if begun.done() and begun.exception() is None:
                closed = await self._close(mine, begun.result(), parcel, row, claims=True)
                if closed is not None:
                    await self._tell_of_result(mine, command, parcel, closed)
                return
        try:
            held = await self._claim(delivered, asked, row)
        except (Fenced, CallHeld, NotFound) as other:  # the turn went on elsewhere, or another worker has it
            _log.info("a command is dropped: %s", other)
            await _stop(begun)
            return
        except BaseException:
            await _stop(begun)
            raise
        if held.result is None:
            result = await self._result(delivered, held, parcel, begun, is_repeatable=dispatch.repeatable)
            closed = None if result is None else await self._close(held, result, parcel)
            if closed is None:
                return
        await self._tell_of_result(held, command, parcel, closed)

    async def _begin(self, mine: CallCard, parcel: Parcel) -> "asyncio.Task[ToolResult]":
        """Begin a pure call, and give it a moment: most are done by then."""
        work = asyncio.create_task(self._run(mine, parcel), name="toolwire-tool")
        try:
            await asyncio.wait((work,), timeout=QUICK_S)
        except BaseException:
            await _stop(work)
            raise
        return work

    async def _close(
        self, held: CallCard, result: ToolResult, parcel: Parcel, *rows: AuditRow, claims: bool = False
    ) -> RecordedResult | None:
        """Keep the result of a call, and the end of a turn that is this call alone; None if it is not this worker's."""
        row = AuditRow.about(held, "finished", self._clock(), result=result)
        has_ended = False

        def tell_end(ends: bool) -> None:
            nonlocal has_ended
            has_ended = ends

        try:
            first = await self._store.close(
                held, result, [*rows, row], claims=claims, ends=turn_end(parcel, held), tell_end=tell_end
            )
        except (Fenced, NotFound) as lost:  # another worker has it by now; the log has heard of this result
            # A pure call that was run before its claim is meant to lose where its command came twice.
            _log.log(logging.INFO if claims else logging.WARNING, "a result came too late: %s", lost)
            return None
        return RecordedResult(first, has_ended)

    async def _claim(self, delivered: Delivered, asked: CallCard, *rows: AuditRow) -> CallCard:
        """Hold a call. A store that gives no answer may have done it all the same, so it is asked again."""
        token = new_id()
        while True:
            try:
                return await self._store.claim(asked, rows, token=token, outlives_turn=True)
            except StoreUnavailable as error:
                _log.warning("call %s may be claimed: %s", asked.call.id, error)
            await delivered.progress()
            await asyncio.sleep(_RETRY_S)

    async def _result(
        self,
        delivered: Delivered,
        held: CallCard,
        parcel: Parcel,
        begun: "asyncio.Task[ToolResult] | None" = None,
        *,
        is_repeatable: bool,
    ) -> ToolResult | None:
        """What comes of a call that this worker holds, and may have begun before; None if that is lost.

        Whatever goes wrong, it comes to an end: while this worker lives, no other takes the call over.
        """
        if held.attempt > 1 and not is_repeatable:  # delivered again after its worker died, perhaps over its effect
            return unknown(held)
        while True:
            try:
                work, begun = begun, None
                return await self._run_watched(delivered, held, parcel, work)
            except StoreUnavailable as error:
                _log.warning("call %s cannot go on: %s", held.call.id, error)
            except Exception as error:
                _log.exception("a call broke its worker")
                message = f"{held.call.name!r} broke its worker ({type(error).__name__}: {error})."
                return ToolResult.failed(held.call, Code.EXECUTION_FAILED, message) if is_repeatable else unknown(held)
            if not is_repeatable:
                return unknown(held)
            await asyncio.sleep(_RETRY_S)

    async def _run_watched(
        self, delivered: Delivered, held: CallCard, parcel: Parcel, begun: "asyncio.Task[ToolResult] | None"
    ) -> ToolResult | None:
        """The result of a call; None if it is not this worker's any more."""
        work = begun or asyncio.create_task(self._run(held, parcel), name="toolwire-tool")
        try:
            while True:
                await asyncio.wait((work,), timeout=self._renew_s)
                if work.done():
                    return work.result()
                await delivered.progress()
                try:
                    now = await self._store.renew(held)
                except StoreUnavailable:  # it may be back before the lease is over
                    continue
                except (Fenced, NotFound) as lost:
                    _log.warning("a call is given up: %s", lost)
                    return None
                if now.result is not None:
                    return None
                if now.cancel:
                    work.cancel()
                    await asyncio.wait((work,))
                    return canceled_result(held.call, begun=True)
        finally:
            await _stop(work)

    async def _run(self, held: CallCard, parcel: Parcel) -> ToolResult:
        try:
            own = await self._of_project(held.project) if self._of_project is not None else self._own
            allowed, info = read_allowed(parcel.allowed, {tool.name: tool for tool in own.toolbox})
            allowed, hidden = _with_environment(allowed, parcel, own.environment)
        except BadFrame as wrong:
            return ToolResult.failed(held.call, Code.NOT_FOUND, f"{held.call.name!r} was not started: {wrong}.")
        except SettingsError as wrong:  # they say more about this machine than the model of a project should read
            _log.warning("calls of project %s are refused: %s", held.project, wrong)
            message = (
                f"{held.call.name!r} was not started: its project is not set up at this worker, whose log says why."
            )
            return ToolResult.failed(held.call, Code.UNAVAILABLE, message)
        except MissingVariable as wrong:
            return ToolResult.failed(held.call, Code.UNAVAILABLE, f"{held.call.name!r} was not started: {wrong}.")
        info = replace(info, attempt=held.attempt, record_id=held.record_id, epoch=held.epoch)
        limits = Limits(result_chars=parcel.result_chars, envelope=parcel.envelope)
        runtime = self._runtime(held.project, own)
        if hidden:
            runtime = self._new_runtime(held.project, own, own.secrets.plus(hidden, len(hidden)))
        telling = self._telling(held, parcel.subject.channel)
        return await ClaimedJourney(runtime, held, allowed, info, limits, telling).run(allowed)

    def _runtime(self, project: str, own: ProjectTools) -> Runtime:
        known = self._runtimes.get(project)
        if known is not None and known[0] is own:
            return known[1]
        if len(self._runtimes) >= _MOST_PROJECTS:
            self._runtimes.clear()
        runtime = self._new_runtime(project, own, own.secrets)
        self._runtimes[project] = own, runtime
        return runtime

    def _new_runtime(self, project: str, own: ProjectTools, secrets: Secrets) -> Runtime:
        return Runtime(own.toolbox, of_project(self._store, project), executor=own.executor, secrets=secrets)

    def _telling(self, held: CallCard, channel: str) -> Emit:
        """Streams what a tool says about its call, but not more often than a person can read."""
        next_at = 0.0

        def emit(event: Event) -> None:
            nonlocal next_at
            now = asyncio.get_running_loop().time()
            if isinstance(event, OutputDelta):  # buffered and bounded where it comes from
                telling = self._tell(output_message(held, channel, event.text, event.stream))
            elif isinstance(event, CallProgress) and now >= next_at:
                next_at = now + _TELL_EVERY_S
                telling = self._tell(progress_message(held, channel, event.message, event.fraction))
            else:
                return
            task = asyncio.create_task(telling, name="toolwire-progress")
            self._telling_now.add(task)
            task.add_done_callback(self._telling_now.discard)

        return emit

    async def _tell(self, message: BusMessage) -> None:
        with suppress(BusError):
            await self._bus.stream(message)

    async def _refuse_message(self, delivered: Delivered, refusal: Refusal) -> None:
        """Give a call its result whose command breaks a rule, if it says clearly whose it is; else only log it."""
        known = refusal.known
        why = "; ".join(one.message for one in refusal.violations[:3])
        project, turn_id, call_id, epoch = (
            known.get(name) for name in ("project_id", "agent_turn_id", "tool_call_id", "turn_epoch")
        )
        if not (isinstance(project, str) and isinstance(turn_id, str) and isinstance(epoch, int)):
            _log.warning("a command is refused: %s", why)
            return
        try:
            _, card = await self._store.dispatched_call(turn_id, str(call_id), project=project)
        except NotFound:  # a call that was never sent to workers is none of their business
            _log.warning("a command is refused: %s", why)
            return
        await self._audit(card, "command_refused", refusal.violations)
        if card.result is not None:
            return
        with suppress(Fenced, CallHeld):
            held = await self._claim(delivered, replace(card, epoch=epoch))
            message = f"{card.call.name!r} was not started: its command was refused ({why})."
            refused = ToolResult.failed(card.call, Code.INVALID_PARAMS, message)
            result = refused if held.attempt == 1 else unknown(held)  # another worker began it, and died
            await self._store.close(held, result, [AuditRow.about(held, "finished", self._clock(), result=result)])
            await self._wake(held, str(known.get("channel_id", "")))

    async def _audit(self, card: CallCard, event: str, violations: Iterable[Violation]) -> None:
        why = [one.message[:500] for one in list(violations)[:5]]
        _log.warning("%s: %s", event, "; ".join(why))
        await self._store.audit([AuditRow.about(card, event, self._clock(), detail={"violations": why})])

    async def _tell_of_result(
        self, card: CallCard, command: ToolCommand, parcel: Parcel, recorded: RecordedResult | None = None
    ) -> None:
        """Ring for whichever process goes on with the turn."""
        if parcel.note_key:
            await self._tell(arrival_note(card, command.subject.channel, parcel.note_key, recorded))
        else:
            await self._wake(card, command.subject.channel, command.origin)

    async def _wake(self, card: CallCard, channel: str, origin: CallOrigin = NO_ORIGIN) -> None:
        """Ring for the turn's runner. If that gets lost, the runner looks by itself."""
        message = wakeup_message(card, channel, origin)
        if isinstance(message, Refusal):
            return
        try:
            await self._bus.publish(message)
        except (BusUnavailable, StoreError) as error:
            _log.info("a wakeup is lost: %s", error)


def _may_begin_unclaimed(card: CallCard, command: ToolCommand) -> bool:
    """Whether a call may begin as it was read: it has no effects, no worker has held it, and its turn still wants it.

    Any other is claimed first, also an idempotent one: a call that is canceled unclaimed is said not to have begun.
    """
    is_wanted = card.epoch == command.turn_epoch and not card.cancel
    return is_wanted and not card.attempt and card.effect == Effect.PURE


async def _stop(work: "asyncio.Task[ToolResult] | None") -> None:
    if work is not None:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _project_of(message: BusMessage) -> str:
    """Whose command it is, as its subject says; the empty name for a subject that breaks a rule."""
    try:
        return Subject.parse(message.subject).project
    except BadSubject:
        return ""


def _with_environment(
    allowed: Allowed, parcel: Parcel, environment: Mapping[str, str]
) -> tuple[Allowed, Mapping[str, Secret]]:
    """The call with the arguments that come from the environment, which are taken out of its result again."""
    if not parcel.environment:
        return allowed, {}
    target = BusService(str(parcel.subject), environment=parcel.environment)
    arguments = with_environment(target, allowed.arguments, environment)
    names = frozenset({allowed.call.name})
    hidden = {name: Secret(environment[name], names, anywhere=True) for name in parcel.environment.values()}
    return replace(allowed, arguments=arguments), hidden
