"""Cards over HTTP, for tool services that have no access to the store: `/v1/projects/{project}/cards/{card}`.

A service shows a token of its own, which is good for nothing else here. It reads the cards of calls that are on their
way to its tools, and writes result cards for them. Everything else is not found, so asking tells nothing.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from toolwire.errors import NotFound
from toolwire.fleet.parcels import call_card, read_parcel
from toolwire.fleet.reports import card_digest
from toolwire.fleet.service_claims import CLAIM_ID, hold_for_service
from toolwire.gateway.faults import Fault, Rejected, told_to_client
from toolwire.gateway.guard import read_body
from toolwire.gateway.openapi import OBJECT, DescribedRoute, Operation
from toolwire.gateway.settings import ServiceToken, TransferLimits
from toolwire.protocol.registrations import ResultCard
from toolwire.record.contract import Store
from toolwire.record.projects import ProjectStore, of_project
from toolwire.wire.utp.cards import MAX_CARD_BYTES, ToolResultCard, decode_result_card, encode_call_card
from toolwire.wire.utp.violations import Refusal

PATH = "/v1/projects/{project}/cards/{card}"
_MOST_CALLS = 1_000


class CardAccess(Struct, frozen=True):
    """The store with the cards."""

    open_store: Callable[[], AbstractAsyncContextManager[Store]]


class CardRoutes:
    """The routes."""

    def __init__(self, access: CardAccess, bounds: TransferLimits) -> None:
        self._access = access
        self._bounds = replace(bounds, body_bytes=min(bounds.body_bytes, MAX_CARD_BYTES))

    def routes(self) -> list[DescribedRoute]:
        return [
            DescribedRoute(PATH, self.read, "GET", Operation({200: OBJECT})),
            DescribedRoute(PATH, self.write, "PUT", Operation({200: OBJECT, 201: OBJECT}, OBJECT)),
        ]

    async def read(self, request: Request) -> Response:
        """The card of a call that is on its way to the service, or a result card that the service has written.

        A call whose card was read counts as begun: it is claimed for the service for as long as it may take.
        """
        service, card_id = _require_service(request), request.path_params["card"]
        async with self._store(service) as view:
            try:
                dispatch, card = await view.dispatched(card_id)
            except NotFound:
                kept = await view.result_card(card_id)
                if kept.author != service.name:
                    raise _no_card() from None
                return _card_response(kept.body, kept.digest)
            if card.call.name not in service.tools:
                raise _no_card()
            parcel = read_parcel(dispatch)
            asked = replace(card, epoch=dispatch.epoch)
            now, repeatable = view.clock(), dispatch.repeatable
            if not await hold_for_service(view, asked, parcel, service.name, now, repeatable=repeatable):
                raise _no_card()
            body = encode_call_card(call_card(parcel, dispatch, card))
        if isinstance(body, Refusal):
            raise Rejected(Fault(500, "card_unreadable", body.violations[0].message))
        return _card_response(body, card_digest(body))

    async def write(self, request: Request) -> Response:
        """Keep a result card. The same again changes nothing; other content under the same id is a conflict."""
        service, card_id = _require_service(request), request.path_params["card"]
        body = await read_body(request.receive, request.headers, self._bounds)
        card = _result_card(body, card_id, service)
        digest = card_digest(body)
        if (said := request.headers.get("x-card-digest", digest)) != digest:
            raise Rejected(Fault(400, "digest_mismatch", f"the card has the digest {digest}, not {said[:80]}"))
        async with self._store(service) as view:
            row = ResultCard(
                service.project, card_id, card.agent_turn_id, card.tool_call_id, digest, body, service.name,
                view.clock(),
            )  # fmt: skip
            await _require_dispatched(view, card, service)
            kept = await view.keep_card(row)
        if kept.author != service.name:
            raise Rejected(Fault(409, "card_conflict", "another service has written this card"))
        return _card_response(kept.body, kept.digest, 201 if kept is row else 200)

    @asynccontextmanager
    async def _store(self, service: ServiceToken) -> AsyncIterator[ProjectStore]:
        with told_to_client("card"):
            try:
                async with self._access.open_store() as store:
                    yield of_project(store, service.project)
            except NotFound:  # in the words for a card of others, so that asking does not tell which there are
                raise _no_card() from None


def _require_service(request: Request) -> ServiceToken:
    """The service whose token was shown. Raises Rejected for a project that is not its own."""
    service: ServiceToken | None = request.scope.get("toolwire.service")
    if service is None:
        raise Rejected(Fault(403, "not_a_service", "cards are read and written with the token of a service"))
    if request.path_params["project"] != service.project:
        raise _no_card()
    return service


async def _require_dispatched(view: ProjectStore, card: ToolResultCard, service: ServiceToken) -> None:
    """Refuse a result of a call that was not sent to the service, or is in a later epoch.

    A call may have ended meanwhile, by its time or by being canceled. What comes then is kept as a late result.
    """
    try:
        dispatch, call = await view.dispatched_call(card.agent_turn_id, card.tool_call_id)
    except NotFound:
        cards = await view.calls(turn_id=card.agent_turn_id, tool=None, limit=_MOST_CALLS)
        ended = [one for one in cards if one.call.id == card.tool_call_id and one.result is not None]
        if not ended or ended[0].call.name not in service.tools:
            raise
        return
    if call.call.name not in service.tools:
        raise _no_card()
    if card.turn_epoch and card.turn_epoch > dispatch.epoch:
        raise Rejected(Fault(400, "bad_card", f"turn_epoch is {card.turn_epoch}, and the turn is at {dispatch.epoch}"))


def _result_card(body: bytes, card_id: str, service: ServiceToken) -> ToolResultCard:
    card = decode_result_card(body)
    if isinstance(card, Refusal):
        raise Rejected(Fault(400, "bad_card", card.violations[0].message))
    if card_id.startswith(CLAIM_ID):
        raise Rejected(Fault(400, "bad_card", f"the id of a card does not begin with {CLAIM_ID}"))
    if card.card_id != card_id:
        raise Rejected(Fault(400, "bad_card", f"the address says {card_id[:200]}, the card {card.card_id}"))
    if card.project_id != service.project:
        raise Rejected(Fault(400, "bad_card", f"project_id is not {service.project}"))
    return card


def _card_response(body: bytes, digest: str, status: int = 200) -> Response:
    return Response(body, status, {"x-card-digest": digest}, "application/json")


def _no_card() -> Rejected:
    return Rejected(Fault(404, "card_not_found", "there is no such card for this service"))
