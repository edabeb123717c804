"""A tool service that has no access to the store: it gets commands and reports over the bus, and cards over HTTP.

It does what the protocol page asks of a service, and no more. Its journal knows which calls it began, but only for as
long as a call may take: what comes after that must be kept from it by the claim that is held for it.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tests.simulation.lossy_bus import LossyBus, LossyDelivery
from tests.simulation.shared_store import StoreView
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.workload import FOREIGN, MACHINES, ONCE, SERVED, Surroundings, result_text
from toolwire.errors import BusUnavailable
from toolwire.gateway.cards import CardAccess, CardRoutes
from toolwire.gateway.faults import Rejected
from toolwire.gateway.settings import ServiceToken, TransferLimits
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.outcomes import Status
from toolwire.record.contract import Store
from toolwire.wire.utp.cards import ToolCallCard, decode_call_card
from toolwire.wire.utp.messages import ToolCommand, callback_of, decode_command, encode_callback

NAME = "machines"
_AT_ONCE = 3
_RETRY_S = 1.0
_LOOKS_EVERY_S = 1.0
_REMEMBERS_S = 8.0
_GONE, _AWAY = 404, 503


class Journal:
    """Which calls the service began lately. It outlives the processes of the service."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._until: dict[tuple[str, str], float] = {}

    def begin(self, key: tuple[str, str], asked_at: float) -> bool:
        """Whether a call may begin; none does that began a moment ago, or whose card was read too long ago."""
        now = self._loop.time()
        if self._until.get(key, 0.0) > now or now > asked_at + _REMEMBERS_S:
            return False
        self._until[key] = now + _REMEMBERS_S
        return True


class HttpCards:
    """The routes for cards, asked without a network in between."""

    def __init__(self, view: StoreView, loop: VirtualLoop) -> None:
        @asynccontextmanager
        async def open_store() -> AsyncIterator[Store]:
            yield view.as_store

        self._routes = CardRoutes(CardAccess(open_store), TransferLimits())

    async def get(self, project: str, card_id: str) -> tuple[int, bytes]:
        return await self._ask(self._routes.read, "GET", project, card_id, b"")

    async def put(self, project: str, card_id: str, card: dict[str, Any]) -> int:
        status, _ = await self._ask(self._routes.write, "PUT", project, card_id, json.dumps(card).encode())
        return status

    async def _ask(
        self, route: Callable[[Request], Awaitable[Response]], method: str, project: str, card_id: str, body: bytes
    ) -> tuple[int, bytes]:
        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        scope = {
            "type": "http", "method": method, "path": f"/v1/projects/{project}/cards/{card_id}", "headers": [],
            "path_params": {"project": project, "card": card_id},
            "toolwire.service": ServiceToken(NAME, project, frozenset(FOREIGN), "token"),
        }  # fmt: skip
        try:
            answer = await route(Request(scope, receive))
        except Rejected as rejected:
            return rejected.fault.status, b""
        return answer.status_code, bytes(answer.body)


class ForeignService:
    """One process of the service."""

    def __init__(self, cards: HttpCards, bus: LossyBus, journal: Journal, surroundings: Surroundings) -> None:
        self._cards = cards
        self._bus = bus
        self._journal = journal
        self._run = surroundings
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        async with (
            self._bus.subscribe(SERVED + MACHINES, durable=f"service-{MACHINES}", in_flight=_AT_ONCE) as commands,
            asyncio.TaskGroup() as tasks,
        ):
            async for delivered in commands:
                tasks.create_task(self._handle(delivered))

    async def _handle(self, delivered: LossyDelivery) -> None:
        try:
            is_done = await self._serve(delivered)
        except BusUnavailable:
            is_done = False
        await (delivered.ack() if is_done else delivered.nak(_RETRY_S))

    async def _serve(self, delivered: LossyDelivery) -> bool:
        """Whether the command needs not come again."""
        command = decode_command(delivered.message)
        assert isinstance(command, ToolCommand)
        project = command.subject.project
        result_id = hashlib.sha256(f"{command.agent_turn_id}/{command.tool_call_id}".encode()).hexdigest()
        status, body = await self._cards.get(project, result_id)
        if status == _GONE:
            asked_at = self._bus.loop.time()
            status, body = await self._cards.get(project, command.tool_call_card_id)
            if status == _GONE:  # it has ended, or was canceled
                return True
            if status != _AWAY:
                return await self._execute(command, body, result_id, asked_at)
        if status == _AWAY:
            return False
        await self._report(command, result_id, Status(json.loads(body)["content"]["status"]))
        return True

    async def _execute(self, command: ToolCommand, body: bytes, result_id: str, asked_at: float) -> bool:
        card = decode_call_card(body)
        assert isinstance(card, ToolCallCard)
        project, key = card.project_id, (card.project_id, f"{card.agent_turn_id}/{card.tool_call_id}")
        if not self._journal.begin(key, asked_at):
            return card.tool_name in ONCE  # where it may begin again, it does once it is known to have failed
        if not await self._takes_its_time(project, command.tool_call_card_id):
            content: dict[str, Any] = {
                "status": "canceled",
                "error": {"code": "canceled", "message": "It was stopped."},
            }
        else:
            number = card.arguments["number"]
            if card.tool_name != "scan":
                self._run.ledger.take_effect(card.tool_name, number, key, f"by {NAME}")
            content = {"status": "success", "result": result_text(card.tool_name, number, project)}
        metadata = {"agent_turn_id": card.agent_turn_id, "tool_call_id": card.tool_call_id, "role": "tool"}
        written = {
            "card_id": result_id, "project_id": project, "type": "tool.result", "content": content,
            "metadata": metadata,
        }  # fmt: skip
        while (status := await self._cards.put(project, result_id, written)) == _AWAY:  # noqa: ASYNC110 -- over HTTP
            await asyncio.sleep(_RETRY_S)
        if status < 300:
            await self._report(command, result_id, Status(content["status"]))
        return True

    async def _takes_its_time(self, project: str, card_id: str) -> bool:
        """Work, and look now and then whether that is still wanted; False where it is not."""
        work = asyncio.create_task(self._run.take_time())
        while not work.done():
            await asyncio.wait((work,), timeout=_LOOKS_EVERY_S)
            if not work.done() and (await self._cards.get(project, card_id))[0] == _GONE:
                work.cancel()
                return False
        return True

    async def _report(self, command: ToolCommand, result_id: str, status: Status) -> None:
        message = encode_callback(callback_of(command, card_id=result_id, status=status))
        assert isinstance(message, BusMessage)
        await self._bus.publish(message)
