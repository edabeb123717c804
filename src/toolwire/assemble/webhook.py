"""The webhook of the settings, which is told when a turn begins to wait for an approval."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from toolwire.assemble.project import ProjectFolder
from toolwire.deliver.questions import announcement_json
from toolwire.errors import SettingsError
from toolwire.hub.services import Tell
from toolwire.lazy import lazy_module
from toolwire.protocol.approvals import ApprovalCard
from toolwire.wire.encode.outbound import to_json

if TYPE_CHECKING:
    from toolwire.execute import webhook
else:
    # Few turns have one, and what speaks HTTP takes longer to load than most calls to run.
    webhook = lazy_module("toolwire.execute.webhook")


@asynccontextmanager
async def open_webhook(project: ProjectFolder) -> AsyncIterator[Tell | None]:
    """The webhook of the settings, as long as the block lasts; None where there is none. Raises SettingsError."""
    chosen = project.settings.approval
    if chosen.webhook is None:
        yield None
        return

    def tell(card: ApprovalCard) -> None:
        hook.send(card.id, to_json(announcement_json(card, arguments=chosen.webhook_arguments)))

    async with webhook.Webhook(chosen.webhook, _key(project), chosen.webhook_hosts) as hook:
        yield tell


def _key(project: ProjectFolder) -> bytes:
    name = project.settings.approval.webhook_key_env
    if name is None:
        return b""
    if not (key := project.environ.get(name, "").strip()):
        raise SettingsError(f"approval.webhook_key_env names {name}, but that variable is not set, or empty")
    return key.encode(errors="surrogateescape")
