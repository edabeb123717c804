"""The API of records under requests that schemathesis makes of its own document, fitting ones and others.

Whatever is sent, the answer is one that the document describes, no answer is an error of the server, and the store is
whole afterwards.
"""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import GenerationMode
from schemathesis.core.result import Err, Ok

from tests.gateway.record_gateway import RECORDS, Gateway, gateway_for

SENT = {name: name for name in ("method", "url", "params", "json", "headers")} | {"data": "content"}
FITTING, OTHER = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


class Fuzzed:
    """A gateway, its document about records, and what was answered."""

    def __init__(self, runner: asyncio.Runner, gateway: Gateway) -> None:
        self.runner = runner
        self.gateway = gateway
        self.document = runner.run(gateway["ADA"].get("/openapi.json")).json()
        self.components = self.document["components"]
        paths = self.document["paths"].items()  # a stream of events does not end by itself
        own = {path: of for path, of in paths if path.startswith(RECORDS) and not path.endswith("/events")}
        named = {"schemas": self.components["schemas"]}
        without_tokens = {**self.document, "paths": own, "security": [], "components": named}
        found = list(schemathesis.openapi.from_dict(without_tokens).get_all_operations())
        assert [one for one in found if isinstance(one, Err)] == []
        self.operations = {one.ok().label: one.ok() for one in found if isinstance(one, Ok)}
        self.statuses: set[tuple[str, int]] = set()

    def send(self, label: str, case: Any) -> None:
        whole = case.as_transport_kwargs(base_url="http://127.0.0.1")
        asked = {SENT[name]: value for name, value in whole.items() if name in SENT}
        answer = self.runner.run(self.gateway["ADA"].request(**asked))
        self.statuses.add((label, answer.status_code))
        assert answer.status_code < 500, answer.text
        told = case.operation.definition.raw["responses"]
        described = told.get(str(answer.status_code), told["default"])
        if "content" not in described:
            assert answer.content == b""
            return
        schema = described["content"]["application/json"]["schema"]
        jsonschema_rs.validate({**schema, "components": self.components}, answer.json())


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    folder: Path = tmp_path_factory.mktemp("fuzzed")
    with asyncio.Runner() as runner:
        opened = gateway_for(folder)
        gateway = runner.run(opened.__aenter__())
        yield Fuzzed(runner, gateway)
        runner.run(opened.__aexit__(None, None, None))


@pytest.mark.parametrize("mode", [FITTING, OTHER])
def test_no_request_gets_an_answer_that_the_document_does_not_describe(fuzzed: Fuzzed, mode: GenerationMode) -> None:
    tried = set()
    for label, operation in fuzzed.operations.items():
        made = fuzzed.runner.run(fuzzed.gateway.created())
        if mode is OTHER and takes_nothing_but_an_id(operation.definition.raw):
            continue
        fuzz(fuzzed, label, operation.as_strategy(generation_mode=mode), made["id"] if mode is FITTING else "")
        tried.add(label)
    own = {f"{method} {RECORDS}{rest}" for method, rest in [("POST", ""), ("GET", ""), ("PATCH", "/{id}")]}
    assert own <= tried
    assert mode is OTHER or tried == fuzzed.operations.keys()
    assert {status for _, status in fuzzed.statuses} >= ({200, 201} if mode is FITTING else {400, 404})
    chain = fuzzed.runner.run(fuzzed.gateway.store.audit_chain(project="acme"))
    assert (chain.broken_at, chain.rows > 0) == (None, True)
    assert fuzzed.runner.run(fuzzed.gateway["ADA"].get(f"{RECORDS}?limit=200")).status_code == 200


def takes_nothing_but_an_id(operation: Mapping[str, Any]) -> bool:
    """Any text is an id, so every request fits such an operation."""
    return "requestBody" not in operation and all(one["in"] == "path" for one in operation.get("parameters", ()))


def fuzz(fuzzed: Fuzzed, label: str, cases: SearchStrategy[Any], record_id: str) -> None:
    """Send some requests of a kind; those that fit are about a record that is there."""

    @settings(
        max_examples=10, database=None, deadline=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=cases)
    def send(case: Any) -> None:
        if record_id and "id" in (case.path_parameters or {}):
            case.path_parameters["id"] = record_id
        fuzzed.send(label, case)

    send()
