"""Defences of calls on a device, each taken away: a sweep that does not notice that shows nothing.

As in `tests/simulation/planted.py`, each is a patch of one function of the product.
"""

from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

from toolwire.edge.device.journal import CallJournal, JournalRow, Opening
from toolwire.edge.device.toolset import DeviceTools
from toolwire.edge.orchestrator.client import DeviceClient

Plant = Callable[[ExitStack], None]


def run_again_what_a_device_began(stack: ExitStack) -> None:
    stack.enter_context(patch.object(DeviceTools, "is_harmless", lambda *_: True))


def take_no_heed_of_the_journal(stack: ExitStack) -> None:
    right = CallJournal.accept

    async def accept(self: CallJournal, row: JournalRow, kept_until: float) -> Opening:
        await right(self, row, kept_until)
        return Opening(None)

    stack.enter_context(patch.object(CallJournal, "accept", accept))


def send_commands_once(stack: ExitStack) -> None:
    stack.enter_context(patch.object(DeviceClient, "_can_reach", lambda *_: False))


DEVICE_PLANTED: dict[str, Plant] = {
    one.__name__: one for one in (run_again_what_a_device_began, take_no_heed_of_the_journal, send_commands_once)
}
