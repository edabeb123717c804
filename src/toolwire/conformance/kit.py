"""Runs the cases against a service over a broker, and gives what was found."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from toolwire.bus.contract import Bus
from toolwire.bus.nats_connection import NatsServers, SecureClient, reason_of
from toolwire.bus.nats_jetstream import STREAMS, StreamPlan, nats_bus
from toolwire.conformance.cases import NONCE, Expect, ProtocolCase, TestedService, all_cases, valid_case
from toolwire.conformance.endpoint import CardEndpoint, served_cards
from toolwire.conformance.findings import (
    CheckResult,
    ObservedAnswers,
    ReceivedReport,
    is_answered,
    judge,
    protocol_faults,
)
from toolwire.errors import BusUnavailable, SettingsError
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import Category, Subject
from toolwire.wire.utp.messages import decode_callback

_LOOK_S = 0.05
_START_S = 20.0
_GREET_S = 1.0
_QUIET_S = 1.0
"""How long nothing may come before a service without a durable consumer counts as done."""

DRAIN = ("drain", "On SIGTERM the call that is being run is finished, and the process ends with 0", "the-bus")
ACKED = ("acknowledged", "Every command is acknowledged, also those that are refused", "the-bus")


class KitOptions(Struct, frozen=True):
    """What to test, and how. `command` starts the service; without one it must be running already.

    `effects` is a file in which every run of the tool leaves its arguments, or a part of them with the nonce.
    """

    subject: Subject
    tool: str
    arguments: Mapping[str, Any]
    servers: NatsServers
    streams: tuple[StreamPlan, ...] = STREAMS
    token: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    effects: Path | None = None
    command: tuple[str, ...] = ()
    timeout_s: float = 20.0


async def run_kit(options: KitOptions) -> list[CheckResult]:
    """Test a service. Raises BusUnavailable, and SettingsError for a service that cannot be started."""
    if options.effects is not None and NONCE not in str(options.arguments):
        raise SettingsError(f"to count effects, one of the arguments must have {NONCE}, which the file then holds")
    trial = TestedService(options.subject, options.tool, options.arguments, f"t{secrets.token_hex(4)}")
    endpoint = CardEndpoint(options.subject.project, options.token or secrets.token_hex(16))
    with served_cards(endpoint, options.host, options.port):
        async with (
            nats_bus(options.servers, streams=options.streams, name="toolwire-conformance") as bus,
            _listener(options) as client,
            _service(options, endpoint) as process,
        ):
            return await _KitRun(options, trial, endpoint, bus, client, process).all()


class _KitRun:
    """One run of the kit."""

    def __init__(
        self,
        options: KitOptions,
        trial: TestedService,
        endpoint: CardEndpoint,
        bus: Bus,
        client: SecureClient,
        process: asyncio.subprocess.Process | None,
    ) -> None:
        self._options = options
        self._trial = trial
        self._endpoint = endpoint
        self._bus = bus
        self._client = client
        self._process = process
        self._reported: list[ReceivedReport] = []

    async def all(self) -> list[CheckResult]:
        report = Subject.report(self._trial.subject.project, self._trial.subject.channel)
        await self._client.subscribe(str(report), cb=self._note)
        await self._client.flush_all()
        cases = all_cases(self._trial)
        greetings = await self._greet()
        if not any(is_answered(case, self._seen()) for case in greetings):
            wrong = self._unanswered(cases[0], greetings)
            return [wrong, *(_skip(case, "a valid command is not answered") for case in cases[1:])]
        for case in cases:
            await self._send(case)
        await self._wait_for(cases)
        acked = await self._wait_until_acknowledged()
        drained, judge_drained = await self._drain()
        seen, known = self._seen(), [*greetings, *cases, *drained]
        findings = [judge(case, seen) for case in cases]
        return [*findings, protocol_faults(seen, known), acked, judge_drained(seen)]

    async def _greet(self) -> list[ProtocolCase]:
        """Send calls until one is answered: a service may take a while to start, and lose what came before."""
        end = asyncio.get_running_loop().time() + max(_START_S, self._options.timeout_s)
        sent: list[ProtocolCase] = []
        while not sent or (asyncio.get_running_loop().time() < end and not self._has_ended()):
            sent.append(valid_case(self._trial, f"greeting-{len(sent)}", ""))
            await self._send(sent[-1])
            if await self._until(lambda: any(is_answered(case, self._seen()) for case in sent), _GREET_S):
                break
        return sent

    async def _note(self, message: Msg) -> None:
        own = {name: text for name, text in (message.headers or {}).items() if not name.lower().startswith("nats-")}
        report = BusMessage(message.subject, message.data, own)
        self._reported.append(ReceivedReport(report, decode_callback(report), self._endpoint.number()))

    async def _send(self, case: ProtocolCase) -> None:
        self._endpoint.serve_case(case)
        for number in range(case.times):
            await self._bus.publish(case.message, dedupe_id=f"{case.nonce}:{number}")

    def _seen(self) -> ObservedAnswers:
        effects = self._options.effects
        text = None
        if effects is not None:
            text = effects.read_text(encoding="utf-8", errors="replace") if effects.exists() else ""
        return ObservedAnswers(self._endpoint.written(), tuple(self._reported), text)

    async def _wait_for(self, cases: Sequence[ProtocolCase]) -> None:
        """Until all cases are answered that must be, the service has ended, or the time is over."""
        wanted = [case for case in cases if case.expect is not Expect.NOT_RUN]
        await self._until(lambda: all(is_answered(case, self._seen()) for case in wanted))

    async def _until(self, is_so: Callable[[], bool], timeout_s: float | None = None) -> bool:
        end = asyncio.get_running_loop().time() + (self._options.timeout_s if timeout_s is None else timeout_s)
        while not is_so():
            if asyncio.get_running_loop().time() >= end or self._has_ended():
                return is_so()
            await asyncio.sleep(_LOOK_S)
        return True

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.returncode is not None

    async def _wait_until_acknowledged(self) -> CheckResult:
        """Until the service has nothing left of what was sent; a broker tells that of durable consumers only."""
        end = asyncio.get_running_loop().time() + self._options.timeout_s
        while True:
            consumers = await self._consumers()
            if not consumers:
                await asyncio.sleep(_QUIET_S)
                return CheckResult(*ACKED, skipped="the broker shows no durable consumer for this subject alone")
            left = sum(one.num_pending + one.num_ack_pending for one in consumers)
            if left == 0:
                return CheckResult(*ACKED)
            if asyncio.get_running_loop().time() >= end or self._has_ended():
                return CheckResult(*ACKED, wrong=(f"{left} commands are not acknowledged, and will come again",))
            await asyncio.sleep(_LOOK_S)

    async def _consumers(self) -> list[Any]:
        """The durable consumers that get commands at this subject alone."""
        stream = next(plan.name for plan in self._options.streams if plan.category is Category.COMMAND)
        jetstream = self._client.jetstream()
        try:
            try:
                known = [await jetstream.consumer_info(stream, f"service-{self._trial.subject.path[0]}")]
            except NotFoundError:
                known = await jetstream.consumers_info(stream)
        except (NatsError, TimeoutError):  # there is no such stream, or the kit may not ask
            return []
        return [one for one in known if one.config.filter_subject == str(self._trial.subject)]

    async def _drain(self) -> tuple[list[ProtocolCase], Callable[[ObservedAnswers], CheckResult]]:
        """Ask the service to end while it reads a card, and let it go on then."""
        if self._process is None:
            skipped = CheckResult(*DRAIN, skipped="give the command that starts the service, so that it can be ended")
            return [], lambda _: skipped
        case = valid_case(self._trial, *DRAIN)
        arrived, go_on = self._endpoint.hold(case)
        await self._send(case)
        reads = await asyncio.to_thread(arrived, self._options.timeout_s)
        if not self._has_ended():
            self._process.send_signal(signal.SIGTERM)
        go_on()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                code = await self._process.wait()
        except TimeoutError:
            return [case], lambda seen: _more(judge(case, seen), "it has not ended in time")
        await self._until(lambda: is_answered(case, self._seen()))
        more = [] if code == 0 else [f"it ended with {code}"]
        more += [] if reads else ["it did not read the card of the last call"]
        return [case], lambda seen: _more(judge(case, seen), *more)

    def _unanswered(self, case: ProtocolCase, greetings: Sequence[ProtocolCase]) -> CheckResult:
        finding = CheckResult(case.name, case.about, case.paragraph, judge(greetings[0], self._seen()).wrong)
        advice = []
        if self._endpoint.denied:
            advice.append(f"{self._endpoint.denied} requests for cards had no token, or another one")
        if self._has_ended() and self._process is not None:
            advice.append(f"the service ended with {self._process.returncode}")
        return _more(finding, *advice)


def _more(finding: CheckResult, *wrong: str) -> CheckResult:
    return CheckResult(finding.name, finding.about, finding.paragraph, (*finding.wrong, *wrong))


def _skip(case: ProtocolCase, why: str) -> CheckResult:
    return CheckResult(case.name, case.about, case.paragraph, skipped=why)


async def _ignore(_: Exception) -> None:
    """What matters is raised where it is asked for."""


@asynccontextmanager
async def _listener(options: KitOptions) -> AsyncIterator[SecureClient]:
    client = SecureClient(options.servers)
    given = {**options.servers.options(), "allow_reconnect": False, "error_cb": _ignore}
    try:
        await client.connect(list(options.servers.urls), name="toolwire-conformance", **given)
    except (NatsError, OSError, TimeoutError) as error:
        raise BusUnavailable(f"the broker cannot be listened to ({reason_of(error)})") from None
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def _service(options: KitOptions, endpoint: CardEndpoint) -> AsyncIterator[asyncio.subprocess.Process | None]:
    """The service, if the kit is to start it; it learns from its environment where everything is."""
    if not options.command:
        yield None
        return
    told = {
        "NATS_URL": options.servers.urls[0],
        "CARDS_URL": endpoint.url,
        "CARDS_TOKEN": endpoint.token,
        "TOOL_SUBJECT": str(options.subject),
        "TOOL_NAME": options.tool,
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *options.command, env={**os.environ, **told}, stdin=asyncio.subprocess.DEVNULL
        )
    except OSError as wrong:
        raise SettingsError(f"{options.command[0]} cannot be started: {wrong.strerror}") from None
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
