"""Approvals over HTTP: `/v1/approvals` lists what calls wait for, shows what would run, and takes answers."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from toolwire.decide.patterns import LONGEST_PATTERN, offered_pattern, pattern_rule
from toolwire.deliver.questions import QuestionJson, plain, question_json
from toolwire.errors import Fenced, NotFound, StoreUnavailable
from toolwire.gateway.faults import Fault, Rejected
from toolwire.gateway.guard import read_body
from toolwire.gateway.openapi import (
    COUNT,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    DescribedRoute,
    Operation,
    list_of,
    or_null,
    record,
    text,
)
from toolwire.gateway.settings import TransferLimits
from toolwire.protocol.approvals import (
    LONGEST_PATTERN_S,
    PATTERN_S,
    Approval,
    ApprovalCard,
    ApprovalState,
    Scope,
)
from toolwire.record.contract import ApprovalStore
from toolwire.wire.encode.outbound import Json
from toolwire.wire.lenient.arguments import read_json

OpenStore = Callable[[], AbstractAsyncContextManager[ApprovalStore | None]]
"""Gives the store of the project for as long as one request lasts; None while nothing is kept there."""

PATH = "/v1/approvals"
MOST_LISTED = 200
_LONGEST_REASON = 2_000
_BODY_BYTES = 1024 * 1024
_LISTED = ("open", "all", "standing")
_TEXTS = {"reason": _LONGEST_REASON, "digest": 200, "pattern": LONGEST_PATTERN}
_HOURS: Json = {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_PATTERN_S / 3600}
_SCOPES: Json = {"enum": [scope.value for scope in Scope]}

ANSWER = record(
    {**{name: text(most) for name, most in _TEXTS.items()}, "arguments": OBJECT, "scope": _SCOPES, "hours": _HOURS},
    granted=FLAG,
)
_SAID = frozenset(ANSWER["properties"])
_GIVEN = record({"arguments": TEXT}, granted=FLAG, by=TEXT, reason=TEXT, scope=_SCOPES, edited=FLAG)
APPROVAL = record(
    id=TEXT, state={"enum": [state.value for state in ApprovalState]}, tool=TEXT, agent=TEXT, reason=TEXT,
    arguments=record(json=TEXT, length=COUNT, sha256=TEXT, truncated=FLAG), digest=TEXT, turn_id=TEXT, call_id=TEXT,
    asked_at=NUMBER, expires_at=or_null(NUMBER), quorum=COUNT, answers=list_of(_GIVEN), pattern=TEXT,
    stands_until=or_null(NUMBER),
)  # fmt: skip
"""What `_shown` gives, as the API's document says it."""


class ApprovalDesk(Struct, frozen=True):
    """Where questions are kept, and the names of those who may look at them and answer; empty is every token's.

    What it holds is let go of with `close` when the server ends. `answered` is called after each answer, so that turns
    which waited for it go on at once.
    """

    open_store: OpenStore
    people: frozenset[str] = frozenset()
    close: Callable[[], Awaitable[None]] | None = None
    answered: Callable[[], None] | None = None


class Approvals:
    """The routes. Who speaks is who the token belongs to, whatever the request says about it."""

    def __init__(self, desk: ApprovalDesk, bounds: TransferLimits) -> None:
        self._desk = desk
        self._bounds = replace(bounds, body_bytes=min(bounds.body_bytes, _BODY_BYTES))

    def routes(self) -> list[DescribedRoute]:
        asked = {"state": {"enum": list(_LISTED)}, "turn": TEXT, "limit": COUNT}
        listed, shown = Operation({200: record(data=list_of(APPROVAL))}, query=asked), Operation({200: APPROVAL})
        return [
            DescribedRoute(PATH, self.listed, "GET", listed),
            DescribedRoute(f"{PATH}/{{id}}", self.one, "GET", shown),
            DescribedRoute(f"{PATH}/{{id}}", self.answer, "POST", replace(shown, body=ANSWER)),
            DescribedRoute(f"{PATH}/{{id}}", self.revoke, "DELETE", shown),
        ]

    async def listed(self, request: Request) -> Response:
        """The open questions, newest first; `state=all` also the others, `turn=ID` one turn's, `limit=N` so many.

        `state=standing` lists the approvals of patterns that are active.
        """
        self._require_person(request)
        state, limit = _state(request), _limit(request)
        try:
            async with self._desk.open_store() as store:
                if store is None:
                    return JSONResponse({"data": []})
                turn, only_open = request.query_params.get("turn"), state == "open"
                if state == "standing":
                    cards = await store.active_patterns(limit=limit)
                else:
                    cards = await store.approvals(turn_id=turn, only_open=only_open, limit=limit)
        except StoreUnavailable as lost:
            raise Rejected(_unavailable(lost)) from None
        return JSONResponse({"data": [_shown(card, whole=False) for card in cards]})

    async def one(self, request: Request) -> Response:
        """One question, with all of its arguments."""
        self._require_person(request)
        return JSONResponse(await self._asked(request.path_params["id"], None, ""))

    async def answer(self, request: Request) -> Response:
        """Take a yes or a no. The first that decides counts; a later one is a conflict (409)."""
        by = self._require_person(request)
        body = await read_body(request.receive, request.headers, self._bounds)
        said = read_answer(body)
        word = Approval(
            said["granted"], by, said["reason"], said["arguments"], said["scope"], said["pattern"], said["lasts_s"]
        )
        return JSONResponse(await self._asked(request.path_params["id"], word, said["digest"]))

    async def revoke(self, request: Request) -> Response:
        """Take back a yes for a pattern."""
        by = self._require_person(request)
        return JSONResponse(await self._asked(request.path_params["id"], None, "", revoked_by=by))

    async def _asked(self, approval_id: str, word: Approval | None, digest: str, revoked_by: str = "") -> QuestionJson:
        """How a question stands, after this word about it if there is one. Raises Rejected."""
        try:
            async with self._desk.open_store() as store:
                if store is None:
                    raise Rejected(Fault(404, "approval_not_found", "no approvals were requested here"))
                card = await store.approval(approval_id)
                if revoked_by:
                    card = await store.revoke(approval_id, revoked_by)
                elif word is not None:
                    _require_fitting(card, word, digest)
                    card = await store.answer(approval_id, word)
                    if self._desk.answered is not None:
                        self._desk.answered()
                return _shown(card, whole=True)
        except NotFound as missing:
            raise Rejected(Fault(404, "approval_not_found", str(missing))) from None
        except Fenced as decided:
            raise Rejected(Fault(409, "already_decided", str(decided))) from None
        except StoreUnavailable as lost:
            raise Rejected(_unavailable(lost)) from None

    def _require_person(self, request: Request) -> str:
        """The name of the caller. Raises Rejected for one who may not answer."""
        caller: str | None = request.scope.get("toolwire.caller")
        if not caller:
            why = "approvals are answered with a token of this gateway; start it with --token-env NAME"
            raise Rejected(Fault(403, "approvals_off", why))
        if self._desk.people and caller not in self._desk.people:
            raise Rejected(Fault(403, "not_asked", f"{caller} is not among approval.people, so others are asked"))
        return caller


def read_answer(body: bytes) -> dict[str, Any]:
    """An answer, every field checked and present. Raises Rejected."""
    try:
        said = read_json(body.decode())
    except (ValueError, RecursionError):
        raise Rejected(_wrong("the body is no JSON")) from None
    if not isinstance(said, dict) or not isinstance(said.get("granted"), bool):
        raise Rejected(_wrong('the body must be an object such as {"granted": true}'))
    if extra := sorted(said.keys() - _SAID):
        fields = ", ".join(sorted(_SAID))
        raise Rejected(_wrong(f"there is no field {extra[0][:40]!r}, only {fields}; who answers is known by the token"))
    checked = {name: _field(said, name, kind) for name, kind in _TEXTS.items()}
    arguments, scope = said.get("arguments"), _scope(said.get("scope", "once"))
    if arguments is not None and not isinstance(arguments, dict):
        raise Rejected(_wrong("arguments must be an object: all arguments of the call"))
    if not said["granted"] and (arguments is not None or scope is not Scope.ONCE):
        raise Rejected(_wrong("a no is about the call as it is; leave out arguments and scope"))
    if (scope is Scope.PATTERN) != bool(checked["pattern"]) or (scope is Scope.PATTERN and arguments is not None):
        raise Rejected(_wrong('a yes for a pattern has scope "pattern", a pattern, and no arguments'))
    return {**checked, "granted": said["granted"], "arguments": arguments, "scope": scope, "lasts_s": _lasts_s(said)}


def _lasts_s(said: Mapping[str, Any]) -> float:
    hours = said.get("hours", PATTERN_S / 3600)
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= LONGEST_PATTERN_S / 3600:
        raise Rejected(_wrong(f"hours is a number up to {LONGEST_PATTERN_S / 3600:g}"))
    return float(hours * 3600)


def _require_fitting(card: ApprovalCard, word: Approval, digest: str) -> None:
    """Refuse a word about something else than was shown, or for a pattern that this call does not have."""
    if digest and digest != card.digest:
        raise Rejected(Fault(409, "other_digest", "this is not what was shown: its digest is another"))
    if word.scope is Scope.PATTERN:
        try:
            pattern_rule(card.tool, card.arguments, word.pattern)
        except ValueError as wrong:
            raise Rejected(_wrong(str(wrong))) from None


def _shown(card: ApprovalCard, *, whole: bool) -> QuestionJson:
    """The question, with the pattern that is allowed, or that could be."""
    pattern = card.pattern
    if card.state is ApprovalState.OPEN:
        pattern = offered_pattern(card.tool, card.arguments)
    return {**question_json(card, whole=whole), "pattern": plain(pattern), "stands_until": card.stands_until}


def _field(said: Mapping[str, Any], name: str, most: int) -> str:
    text = said.get(name, "")
    if not isinstance(text, str) or len(text) > most:
        raise Rejected(_wrong(f"{name} must be text of at most {most} characters"))
    return text


def _scope(name: Any) -> Scope:
    try:
        return Scope(name)
    except ValueError:
        raise Rejected(_wrong(f"scope is one of {', '.join(Scope)}")) from None


def _state(request: Request) -> str:
    state = request.query_params.get("state", "open")
    if state not in _LISTED:
        raise Rejected(_wrong("state is open, all or standing"))
    return state


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "50")
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 0 < int(text) <= MOST_LISTED):
        raise Rejected(_wrong(f"limit is a number from 1 to {MOST_LISTED}"))
    return int(text)


def _wrong(why: str) -> Fault:
    return Fault(400, "bad_answer", why)


def _unavailable(lost: Exception) -> Fault:
    return Fault(503, "store_unavailable", str(lost))
