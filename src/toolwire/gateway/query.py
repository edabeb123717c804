"""Numbers in the address of a request."""

from starlette.requests import Request

from toolwire.gateway.faults import Fault, Rejected

MOST_CURSOR = 2**53
"""The greatest number that every client's JSON reads exactly."""


def read_number(request: Request, name: str, usual: int, most: int) -> int:
    """A whole number in the address, at least 1 for a `limit`; the usual one where none is given. Raises Rejected."""
    text = request.query_params.get(name)
    if text is None:
        return usual
    least = 1 if name in ("limit", "nn") else 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 16 and least <= int(text) <= most):
        raise Rejected(Fault(400, "bad_request", f"{name} is a number from {least} to {most}"))
    return int(text)


def read_cursor(request: Request, name: str) -> int | None:
    """A cursor in the address; None where none is given. Raises Rejected."""
    found = read_number(request, name, -1, MOST_CURSOR)
    return None if found < 0 else found
