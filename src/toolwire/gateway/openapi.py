"""The gateway's API as an OpenAPI document, made of its routes: it has every route that is served, and no other.

A route says with its `Operation` what it takes and what it answers; what it does is told by the docstring of its
endpoint.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolwire import __version__
from toolwire.gateway.middleware import OPEN_PATHS
from toolwire.gateway.responses import json_response
from toolwire.wire.encode.outbound import Json

PATH, EVENTS, MERGE_PATCH = "/openapi.json", "text/event-stream", "application/merge-patch+json"

ANYTHING: Json = {}
OBJECT: Json = {"type": "object"}
TEXT: Json = {"type": "string"}
NUMBER: Json = {"type": "number"}
COUNT: Json = {"type": "integer", "minimum": 0}
FLAG: Json = {"type": "boolean"}


def record(optional: Mapping[str, Json] | None = None, /, **fields: Json) -> Json:
    """The schema of an object with exactly these fields, and those of `optional` where they are given."""
    return {
        "type": "object",
        "properties": {**fields, **(optional or {})},
        "required": list(fields),
        "additionalProperties": False,
    }


def list_of(items: Json) -> Json:
    return {"type": "array", "items": items}


def or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def text(most: int) -> Json:
    return {"type": "string", "maxLength": most}


ERROR: Json = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"message": TEXT, "type": TEXT, "code": or_null(TEXT)},
            "required": ["message", "type"],
        }
    },
    "required": ["error"],
}
"""Both APIs that clients speak write errors so, as far as they agree."""


class Operation(Struct, frozen=True):
    """What a route takes and answers: schemas by the status of an answer, None for one without a body.

    `query` are the parameters in its address. `media` is the type of its answers; one that `streams` may also send
    events, and one that `patches` takes a merge patch under its own type too. Without a `summary`, the docstring of
    the endpoint is it.
    """

    answers: Mapping[int, Json | None]
    body: Json | None = None
    query: Mapping[str, Json] = field(default_factory=dict)
    media: str = "application/json"
    streams: bool = False
    summary: str = ""
    headers: Mapping[str, Json] = field(default_factory=dict)
    required_headers: Mapping[str, Json] = field(default_factory=dict)
    patches: bool = False

    def parameters(self) -> list[Json]:
        """What is asked for beside the path and the body."""
        found = [{"name": name, "in": "query", "schema": schema} for name, schema in self.query.items()]
        found += [{"name": name, "in": "header", "schema": schema} for name, schema in self.headers.items()]
        must = self.required_headers.items()
        return found + [{"name": name, "in": "header", "required": True, "schema": schema} for name, schema in must]


class DescribedRoute(Route):
    """A route with one method that says what it takes and answers."""

    def __init__(self, path: str, endpoint: Callable[..., Any], method: str, operation: Operation) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.method = method
        self.operation = operation

    def described(self) -> Json:
        """The operation in the words of OpenAPI."""
        operation = self.operation
        told = operation.summary or " ".join((inspect.getdoc(self.endpoint) or "").split())
        named = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in self.param_convertors]
        asked = operation.parameters()
        words: Json = {
            "operationId": re.sub(r"\W+", "_", f"{self.method.lower()}{self.path_format}").rstrip("_"),
            "description": told,
            "responses": {
                **{str(status): self._answer(schema) for status, schema in operation.answers.items()},
                "default": {"description": "What is wrong, and what to do.", "content": _content(_named("Error"))},
            },
        }
        if named or asked:
            words["parameters"] = [*named, *asked]
        if operation.body is not None:
            patch = _content(operation.body, MERGE_PATCH) if operation.patches else {}
            words["requestBody"] = {"required": True, "content": _content(operation.body) | patch}
        if self.path in OPEN_PATHS:
            words["security"] = []
        return words

    def _answer(self, schema: Json | None) -> Json:
        if schema is None:
            return {"description": "There is nothing more to tell."}
        events = _content(TEXT, EVENTS) if self.operation.streams else {}
        return {"description": "The answer.", "content": _content(schema, self.operation.media) | events}


class ApiPage:
    """Shows the document of all routes in a list, as they are when it is first asked for."""

    def __init__(self, routes: Sequence[DescribedRoute]) -> None:
        self._routes = routes
        self._document: Json | None = None

    async def show(self, _: Request) -> Response:
        """This document."""
        if self._document is None:
            self._document = document(self._routes)
        return json_response(self._document)

    def route(self) -> DescribedRoute:
        return DescribedRoute(PATH, self.show, "GET", Operation({200: OBJECT}))


def document(routes: Sequence[DescribedRoute]) -> Json:
    """All routes in the words of OpenAPI 3.1."""
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path_format, {})[route.method.lower()] = route.described()
    token = {"type": "http", "scheme": "bearer", "description": "A token that the gateway was started with."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "toolwire serve", "version": __version__},
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": token}, "schemas": {"Error": ERROR}},
        "paths": paths,
    }


def _content(schema: Json, media: str = "application/json") -> Json:
    return {media: {"schema": schema}}


def _named(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}
