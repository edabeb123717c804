"""A way out for one command in a box: the proxy of its call, and the bridge that leads to it."""

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.execute.egress.caps import Audit, Caps, no_audit
from toolwire.lazy import lazy_module
from toolwire.protocol.operations import Command, Refusal

if TYPE_CHECKING:
    from toolwire.execute.egress import proxy
    from toolwire.execute.egress.connector import Connector
else:
    # Most commands reach no host, and what speaks HTTP takes longer to load than they take to run.
    proxy = lazy_module("toolwire.execute.egress.proxy")

INSIDE = "/run/toolwire/door"
"""Where a box finds the socket of its proxy."""

PYTHON = "/usr/bin/python3"


@asynccontextmanager
async def way_out(
    command: Command,
    network: Iterable[str],
    *,
    connector: "Connector | None" = None,
    caps: Caps | None = None,
    audit: Audit = no_audit,
    refusal: Refusal | None = None,
) -> AsyncIterator[Command]:
    """The command as it must be run to reach the hosts of a grant, while the block lasts; unchanged if there are none.

    The box needs no network, only `INSIDE` bound to the command's `door` and a Python at `PYTHON`.
    """
    rules = tuple(network)
    if not rules:
        yield command
        return
    folder = tempfile.mkdtemp(prefix="toolwire-")
    try:
        # The box runs under another uid, to which the engine gives the socket; it must be able to come here.
        os.chmod(folder, 0o711)  # noqa: PTH101, S103
        path = f"{folder}/{secrets.token_hex(16)}"
        async with proxy.EgressProxy(path, rules, connector=connector, caps=caps, audit=audit, refusal=refusal):
            yield behind_bridge(command, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def behind_bridge(command: Command, door: str) -> Command:
    """The same command behind the bridge, which is handed over as text, so that no file has to be bound."""
    argv = (PYTHON, "-I", "-S", "-c", _bridge(), INSIDE, str(proxy.BRIDGE_PORT), *command.argv)
    return replace(command, argv=argv, env={**command.env, **proxy.proxy_environment()}, door=door)


@cache
def _bridge() -> str:
    return proxy.BRIDGE.read_text(encoding="utf-8")
