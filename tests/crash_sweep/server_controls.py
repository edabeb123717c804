"""Defences of stores and brokers that outlive a process, each taken away, or what stands in for others there.

As in `tests/simulation/planted.py`, each is a patch of one thing of the product.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast
from unittest.mock import patch

from toolwire.bus.nats_jetstream import NatsBus
from toolwire.errors import BusUnavailable
from toolwire.fleet.service_claims import hold_for_service
from toolwire.gateway import cards
from toolwire.protocol.records import CallCard
from toolwire.protocol.registrations import ResultCard
from toolwire.record import changes, dispatch_rows, pg_connection
from toolwire.record.projects import ProjectStore
from toolwire.record.writer import Writer

Plant = Callable[[ExitStack], None]


def write_over_what_has_the_same_id(stack: ExitStack) -> None:
    """The tables take a second turn with an id in place of the first."""
    anew = ("epoch", "owner", "state", "opening", "history", "history_upto", "waits")
    sets = ", ".join([f"{name} = excluded.{name}" for name in anew])
    over = f"{changes.BEGIN_TURN} ON CONFLICT (id, project) DO UPDATE SET {sets}, ending = NULL, ended = NULL"
    stack.enter_context(patch.object(changes, "BEGIN_TURN", over))


def keep_commands_of_what_has_ended(stack: ExitStack) -> None:
    """The tables remember commands whose calls have a result: a worker that gets one finds it."""
    nothing = "DELETE FROM dispatches WHERE due < -1e9 AND due <= ?1"
    stack.enter_context(patch.object(dispatch_rows, "_DROP_ENDED", f"{nothing} AND project = ?2"))
    stack.enter_context(patch.object(dispatch_rows, "_DROP_ALL_ENDED", nothing))


class _KeepsLater:
    """What a service's claim is made in, where its token is kept once the claim is."""

    def __init__(self, view: ProjectStore) -> None:
        self._view = view
        self._row: ResultCard | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    async def keep_card(self, row: ResultCard) -> ResultCard:
        self._row = row
        return row

    async def claim(self, *args: Any, **more: Any) -> CallCard:
        held = await self._view.claim(*args, **more)
        if self._row is not None:
            await self._view.keep_card(self._row)
        return held


def keep_tokens_of_services_after_their_claims(stack: ExitStack) -> None:
    """Who dies in between leaves a call held by a token that nobody knows."""
    right = hold_for_service

    async def hold(view: ProjectStore, *args: Any, **more: Any) -> bool:
        return await right(cast("ProjectStore", _KeepsLater(view)), *args, **more)

    stack.enter_context(patch.object(cards, "hold_for_service", hold))


def send_only_while_connected(stack: ExitStack) -> None:
    """The client library keeps nothing for a broker that is away."""
    right = NatsBus.publish

    async def publish(self: Any, *args: Any, **more: Any) -> bool:
        if not self._client.is_connected:
            raise BusUnavailable("the broker is away")
        return await right(self, *args, **more)

    stack.enter_context(patch.object(NatsBus, "publish", publish))


def confirm_before_it_is_written(stack: ExitStack) -> None:
    """The server says that it has kept something, and writes it to its log a moment later."""
    stack.enter_context(patch.dict(pg_connection._ISOLATED, synchronous_commit="off"))


def give_up_what_was_not_kept(stack: ExitStack) -> None:
    """A result that could not be kept, or a turn that could not be released, is not tried again."""
    stack.enter_context(patch.object(Writer, "retry_later", lambda *_: None))


SERVER_PLANTED: dict[str, Plant] = {
    one.__name__: one
    for one in (
        write_over_what_has_the_same_id,
        keep_commands_of_what_has_ended,
        keep_tokens_of_services_after_their_claims,
        send_only_while_connected,
        confirm_before_it_is_written,
        give_up_what_was_not_kept,
    )
}
