"""Answers of our own APIs."""

from collections.abc import Mapping

from starlette.responses import Response

from toolwire.wire.encode.outbound import Json, to_json


def json_response(body: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Any text can be written so; what UTF-8 cannot carry is replaced."""
    return Response(to_json(body), status, headers, "application/json")
