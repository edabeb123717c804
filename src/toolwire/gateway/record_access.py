"""Who may use records over HTTP, and what goes wrong with them in HTTP's words. Shared by all routes about records."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from msgspec import Struct, field
from starlette.requests import Request

from toolwire.breadcrumbs.new_records import require_known
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import InvalidRecord, NotPermitted, SettingsError
from toolwire.gateway.faults import Fault, Rejected, told_to_client
from toolwire.wire.utp.reading import read_object
from toolwire.wire.utp.violations import Violation, ViolationCode

PATHS = ("/v1/records", "/breadcrumbs")
"""Where records are served. The second is the name that the seeds give them, for the same routes."""


class RecordAccess(Struct, frozen=True):
    """How the records of the served project are opened, and the roles of callers by the names of their tokens."""

    open_service: Callable[[], AbstractAsyncContextManager[RecordService]]
    roles: Mapping[str, Role]
    doorbells: list[Callable[[], None]] = field(default_factory=list)
    """What is rung after each request, which may have changed something."""

    def require_caller(self, request: Request) -> Caller:
        """Who asks, and with which role. Raises Rejected for a client without one."""
        name: str = request.scope.get("toolwire.caller") or ""
        role = self.roles.get(name) if name else None
        if role is None:
            why = "records are for tokens that records.readers, records.writers or records.admins names"
            raise Rejected(Fault(403, "records_off", why))
        return Caller(name, role)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[RecordService]:
        """The records, for one request. What goes wrong with them is raised as Rejected."""
        with told_about_records():
            async with self.open_service() as opened:
                yield opened
        for ring in self.doorbells:
            ring()


@contextmanager
def told_about_records() -> Iterator[None]:
    """Errors of records in HTTP's words."""
    try:
        with told_to_client("record"):
            yield
    except InvalidRecord as wrong:
        raise Rejected(bad_record(str(wrong))) from None
    except NotPermitted as wrong:
        raise Rejected(Fault(403, "not_permitted", str(wrong))) from None
    except SettingsError as wrong:
        raise Rejected(Fault(503, "records_unavailable", str(wrong))) from None


def require_known_query(request: Request, names: Iterable[str]) -> None:
    """Raises Rejected for a name in an address that means nothing: a misspelled filter would let everything through."""
    with told_about_records():
        require_known(request.query_params, names)


def read_record_body(body: bytes, most: int) -> dict[str, Any]:
    """The object that a request holds: strict JSON, every key once. Raises Rejected."""
    found = read_object(body, most, "the body")
    if isinstance(found, Violation):
        if found.code is ViolationCode.TOO_LARGE:
            raise Rejected(Fault(413, "body_too_large", found.message))
        raise Rejected(bad_record(found.message))
    return found


def bad_record(why: str) -> Fault:
    return Fault(400, "bad_record", why)
