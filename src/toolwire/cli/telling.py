"""From settings to whoever is told when a turn begins to wait for people."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from toolwire.cli.opening import Place
from toolwire.deliver.questions import announced
from toolwire.errors import SettingsError
from toolwire.hub.services import Tell
from toolwire.protocol.approvals import ApprovalCard
from toolwire.wire.outbound import to_json

if TYPE_CHECKING:
    from toolwire.execute.webhook import Webhook


@asynccontextmanager
async def teller_of(place: Place) -> AsyncIterator[Tell | None]:
    """The webhook of the settings, as long as the block lasts; None where there is none. Raises SettingsError."""
    chosen = place.settings.approval
    if chosen.webhook is None:
        yield None
        return

    def tell(card: ApprovalCard) -> None:
        hook.send(card.id, to_json(announced(card, arguments=chosen.webhook_arguments)))

    # Few turns have one, and what speaks HTTP takes longer to load than most calls to run.
    webhook: type[Webhook] = import_module("toolwire.execute.webhook").Webhook
    async with webhook(chosen.webhook, _key(place), chosen.webhook_hosts) as hook:
        yield tell


def _key(place: Place) -> bytes:
    name = place.settings.approval.webhook_key_env
    if name is None:
        return b""
    if not (key := place.environ.get(name, "").strip()):
        raise SettingsError(f"approval.webhook_key_env names {name}, but that variable is not set, or empty")
    return key.encode(errors="surrogateescape")
