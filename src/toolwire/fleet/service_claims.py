"""Claims that are held for services without access to the store.

A service that reads the card of a call may begin to run it, so from then on the call is claimed for it, for as long as
a call of the tool may take. If no report comes in that time, the relay sends the call again where that does no harm;
otherwise its outcome is unknown, and is not said to be that it was never started. The token of the claim is kept where
no service can read it, for the process that receives the report.
"""

import hashlib

from msgspec.structs import replace

from toolwire.deliver.endings import unknown
from toolwire.errors import CallHeld, Conflict, Fenced, NotFound
from toolwire.fleet.parcels import Parcel
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.registrations import ResultCard
from toolwire.record.projects import ProjectStore
from toolwire.record.rows import new_id

CLAIM_ID = "claim:"
"""How the ids of such tokens begin; no card of a service may be called so."""

_MARGIN_S = 5.0
_NO_SERVICE = ""


async def hold_for_service(
    view: ProjectStore, card: CallCard, parcel: Parcel, service: str, now: float, *, repeatable: bool
) -> bool:
    """Claim a call for a service that reads its card; False where it must not be run any more."""
    if card.cancel:  # a service that reads the card once more learns that it may stop
        return False
    until = now + float(parcel.allowed["timeout_s"]) + _MARGIN_S
    row = AuditRow.about(card, "started", now, detail={"service": service})
    # Kept before the claim: a process that dies in between leaves no call held by a token that cannot be found.
    token = await _kept_token(view, card, card.attempt + 1, new_id(), now)
    try:
        held = await view.claim(card, [row], owner=f"service {service}", until=until, token=token)
    except CallHeld as other:
        return other.owner == f"service {service}"  # it reads the card once more
    except Fenced:  # the turn went on elsewhere, or was canceled
        return False
    if held.result is not None:
        return False
    if held.attempt > 1 and not repeatable:  # its command came again after the first claim was over
        result = unknown(held)
        await view.close(held, result, [AuditRow.about(held, "finished", now, result=result)])
        return False
    if held.attempt > card.attempt + 1:  # it was claimed by others since its card was looked at
        await _kept_token(view, held, held.attempt, held.token, now)
    return True


async def _kept_token(view: ProjectStore, card: CallCard, attempt: int, token: str, now: float) -> str:
    """The token for an attempt at a call, as it is kept from now on: the first one that was kept."""
    body = token.encode()
    digest = hashlib.sha256(body).hexdigest()
    card_id = _claim_id(card, attempt)
    kept = ResultCard(card.project, card_id, card.turn_id, card.call.id, digest, body, _NO_SERVICE, now)
    try:
        return (await view.keep_card(kept)).body.decode()
    except Conflict:
        return (await view.result_card(card_id)).body.decode()


async def with_service_claim(view: ProjectStore, card: CallCard) -> CallCard:
    """The card with the token of the claim that is held for its service, if that is the newest."""
    try:
        kept = await view.result_card(_claim_id(card, card.attempt))
    except NotFound:
        return card
    return replace(card, token=kept.body.decode()) if kept.author == _NO_SERVICE else card


def _claim_id(card: CallCard, attempt: int) -> str:
    return f"{CLAIM_ID}{card.record_id}:{attempt}"
