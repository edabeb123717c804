"""A gateway in this process that serves records, with a client for each role."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from toolwire.breadcrumbs.rules.callers import Role
from toolwire.breadcrumbs.sealing import KeyFile, Sealer
from toolwire.breadcrumbs.service import RecordRules, RecordService
from toolwire.gateway.app import make_app
from toolwire.gateway.record_access import RecordAccess
from toolwire.gateway.settings import Access, Upstream
from toolwire.record.memory import MemoryStore

ROLES = {"ANN": Role.WRITER, "BEN": Role.WRITER, "EVE": Role.READER, "ADA": Role.ADMIN}
NAMES = (*ROLES, "STRANGER")
NOTE: dict[str, Any] = {"schema_name": "note.v1", "title": "Door", "tags": ["house"], "context": {"colour": "red"}}
RECORDS = "/v1/records"


@dataclass
class Gateway:
    """A gateway in this process, with a client for each token, and what is behind it."""

    clients: dict[str, httpx2.AsyncClient]
    store: MemoryStore
    service: RecordService
    keys: KeyFile

    def __getitem__(self, name: str) -> httpx2.AsyncClient:
        return self.clients[name]

    async def created(self, name: str = "ANN", **fields: Any) -> dict[str, Any]:
        answer = await self[name].post(RECORDS, json={**NOTE, **fields})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found


@asynccontextmanager
async def gateway_for(folder: Path, *, strict: bool = False) -> AsyncIterator[Gateway]:
    store, keys = MemoryStore(), KeyFile(folder / "keys" / "records.key")
    service = RecordService(store, "acme", rules=RecordRules(strict=strict, sealer=Sealer(keys, "acme")))

    @asynccontextmanager
    async def open_service() -> AsyncIterator[RecordService]:
        yield service

    access = Access(tokens=tuple(f"token-of-{name}" for name in NAMES), callers=NAMES)
    app = make_app(Upstream("http://127.0.0.1:9"), access=access, records=RecordAccess(open_service, ROLES))
    transport = httpx2.ASGITransport(app=app)
    clients = {
        name: httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers={"authorization": f"Bearer token-of-{name}"}
        )
        for name in NAMES
    }
    yield Gateway(clients, store, service, keys)
    for client in clients.values():
        await client.aclose()


def told(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]
