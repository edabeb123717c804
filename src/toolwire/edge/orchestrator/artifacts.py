"""Fetches what a device keeps because it was too large for a report, piece by piece."""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from toolwire.edge.orchestrator.client import DeviceClient, command_for
from toolwire.record.rows import new_id
from toolwire.wire.mqtt.commands import CommandKind

PIECE_BYTES = 128 * 1024
MOST_BYTES = 256 * 1024 * 1024
_PIECE_S = 15.0
_LEAST_BYTES_PER_S = 64 * 1024
"""A device that is slower than this is not waited for."""

_ATTEMPTS = 3
_AT_ONCE = 8


async def fetch_artifact(client: DeviceClient, device: str, about: Mapping[str, Any]) -> bytes | None:
    """All of it, if it is what its digest says; None where it is too large, is gone, or the device takes too long."""
    match about:
        case {"id": str(name), "size": int(size), "sha256": str(digest)} if 0 <= size <= MOST_BYTES:
            data = bytearray()
        case _:
            return None
    at_once = 1  # a device that answers with crumbs is found out by the first
    with suppress(TimeoutError):
        async with asyncio.timeout(_ATTEMPTS * _PIECE_S + size / _LEAST_BYTES_PER_S):
            while len(data) < size:
                places = range(len(data), size, PIECE_BYTES)[:at_once]
                for piece in await asyncio.gather(*(_piece(client, device, name, place) for place in places)):
                    if piece is None or len(piece) != min(PIECE_BYTES, size - len(data)):
                        return None
                    data += piece
                at_once = _AT_ONCE
    return await asyncio.to_thread(_checked, data, digest)


def _checked(data: bytearray, digest: str) -> bytes | None:
    return bytes(data) if hashlib.sha256(data).hexdigest() == digest else None


async def _piece(client: DeviceClient, device: str, name: str, offset: int) -> bytes | None:
    for _ in range(_ATTEMPTS):
        wanted = {"artifact": name, "offset": offset, "length": PIECE_BYTES}
        report = await client.ask(command_for(device, CommandKind.FETCH, new_id(), wanted), _PIECE_S)
        data = None if report is None else report.body.get("data")
        if isinstance(data, str):
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError):
                return None
        if report is not None:  # it says that there is nothing
            return None
    return None
