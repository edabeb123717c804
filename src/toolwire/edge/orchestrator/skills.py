"""Pushing a skill to a device, piece by piece."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from toolwire.edge.keys import PrivateKey
from toolwire.edge.orchestrator.client import command_for
from toolwire.edge.skill_bundles import BundleHead, pack_skill, piece_payloads
from toolwire.errors import ToolwireError
from toolwire.record.rows import new_id
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand
from toolwire.wire.mqtt.reports import EdgeReport

PIECE_BYTES = 128 * 1024
ANSWER_S = 30.0


class PushFailed(ToolwireError):
    """A device did not take a skill; the message says why."""


class AsksDevices(Protocol):
    """Sends commands that are no calls."""

    async def ask(self, command: EdgeCommand, within_s: float) -> EdgeReport | None:
        """The report; None if none comes in this time."""
        ...


async def push_skill(
    client: AsksDevices,
    device: str,
    folder: Path,
    key: PrivateKey,
    *,
    allow_older: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _count: None,
    within_s: float = ANSWER_S,
) -> tuple[BundleHead, dict[str, Any]]:
    """Send a skill and return what the device said at last. Raises DefinitionError, and PushFailed.

    Sending it again is harmless: a device that has it says so.
    """
    head, packed = pack_skill(folder, older=allow_older)
    body: dict[str, Any] = {}
    for payload in piece_payloads(head, packed, key.key_id, key.sign, PIECE_BYTES):
        report = await client.ask(command_for(device, CommandKind.INSTALL_SKILL, new_id(), payload), within_s)
        if report is None:
            raise PushFailed(f"{device} did not answer within {within_s:g} s; is it online? (toolwire edge list)")
        body = dict(report.body)
        if body.get("status") != "success":
            raise PushFailed(f"{device}: {body.get('error') or 'it gave no reason'}")
        progress(payload["index"] + 1, payload["count"])
        if body.get("result") == "installed":
            break
    return head, body
