"""The tool that keeps a catalogue of OpenRouter's models as a record, so that agents find models without asking there.

The record is one for each project. What it holds was read from the provider, so those who read it are untrusted by it.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

from msgspec.structs import replace

from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller
from toolwire.breadcrumbs.service import RecordService
from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.agents.model_tools import ANYONE, Configured, configured_by_record, opened_model
from toolwire.toolbox.records.access import RECORDS, failures, required

CATALOG = "openrouter.models.catalog.v1"
MOST_MODELS = 3_000
FRESH_S = 3_600.0
"""How long a catalogue is taken as current."""

_TAGS = ("openrouter:models", "models:catalog")
_KEY = "openrouter-models-catalog"
_LONGEST_NAME = 200
_PROVIDER = "openrouter"


class ModelsSyncOutput(TypedDict):
    models_count: Annotated[int, Field(description="How many models the catalogue has.")]
    catalog_id: Annotated[str, Field(description="The id of the record that holds it.")]
    last_updated: Annotated[str, Field(description="When it was read from the provider, as an ISO date.")]
    message: Annotated[str, Field(description="What was done, in a sentence.")]


def models_sync_tool(
    records: RecordService | None, configured: Mapping[str, Configured], clock: Callable[[], float] = time.time
) -> Tool:
    """The tool `openrouter_models_sync`, which asks where the tool `openrouter` does."""

    @tool(
        name="openrouter_models_sync",
        tier=Tier.WALK,
        effect=Effect.IDEMPOTENT,
        category=RECORDS,
        needs={RECORDS, "network"},
        timeout_s=30.0,
        examples=({}, {"force_refresh": True}),
    )
    async def sync(context: Context, force_refresh: bool = False) -> ModelsSyncOutput:
        """Keep the catalogue of OpenRouter's models current. Find it with breadcrumb-search by its id.

        Args:
            force_refresh: Ask the provider even if the catalogue is less than an hour old.
        """
        service = required(records)
        with failures():
            old = await _catalogue(service)
            if old is not None and not force_refresh and clock() - old.updated_at < FRESH_S:
                return _output(old, "The catalogue is current.")
            site = _site(configured, context)
            models = await _models(site)
            updated = datetime.fromtimestamp(clock(), UTC).isoformat(timespec="seconds")
            content = {"models": models, "models_count": len(models), "last_updated": updated}
            record = await _keep(service, old, content, _writer(context, site))
        return _output(record, f"The catalogue has {len(models)} models.")

    return sync


def _site(configured: Mapping[str, Configured], context: Context) -> Configured:
    chosen = configured.get(context.agent) or configured.get(ANYONE)
    if context.config is not None:
        return configured_by_record(_PROVIDER, {"defaultModel": "any", **context.config}, chosen)
    if chosen is None:
        raise ToolFailure("openrouter is not configured; an operator can set tools.models", code=Code.UNAVAILABLE)
    return chosen


async def _models(site: Configured) -> list[dict[str, Any]]:
    """What the provider says about its models, as far as agents need it. Raises ToolFailure."""
    async with opened_model(site, site.model) as opened:
        said = await opened.model_list()  # type: ignore[attr-defined]  # every model of this provider has it
    listed = said.get("data")
    models = [_entry(one) for one in listed if _is_model(one)] if isinstance(listed, list) else []
    if not models:
        raise ToolFailure("the provider lists no models; the catalogue was left as it is", code=Code.UNAVAILABLE)
    return sorted(models, key=lambda one: str(one["id"]))[:MOST_MODELS]


def _is_model(said: Any) -> bool:
    return isinstance(said, dict) and isinstance(said.get("id"), str) and 0 < len(said["id"]) <= _LONGEST_NAME


def _entry(said: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": said["id"]}
    if isinstance(name := said.get("name"), str):
        entry["name"] = name[:_LONGEST_NAME]
    if isinstance(length := said.get("context_length"), int):
        entry["context_length"] = length
    if isinstance(pricing := said.get("pricing"), dict):
        entry["pricing"] = {
            kind: str(pricing[kind])[:40] for kind in ("prompt", "completion") if isinstance(pricing.get(kind), str)
        }
    return entry


async def _catalogue(service: RecordService) -> Record | None:
    rows = await service.listed(RecordQuery(CATALOG), RUNTIME, limit=1)
    return rows[0].value if rows else None


async def _keep(service: RecordService, old: Record | None, content: dict[str, Any], writer: Caller) -> Record:
    """Put the catalogue in the place of the older one. Where another process was faster, its own is the next one."""
    if old is None:
        new = NewRecord(CATALOG, "Models of OpenRouter", _TAGS, content)
        if (made := await service.create_first(new, writer, key=_KEY)) is not None:
            return made
        old = await _catalogue(service)
        if old is None:
            raise ToolFailure("the catalogue was deleted meanwhile; try again", code=Code.UNAVAILABLE)
    return await service.patch(old.id, {"context": content}, old.version, writer)


def _writer(context: Context, site: Configured) -> Caller:
    origin = site.base_url or f"{_PROVIDER}:models"
    return replace(RUNTIME, turn_id=context.turn_id, call_id=context.call_id, origins=(origin,))


def _output(record: Record, message: str) -> ModelsSyncOutput:
    return {
        "models_count": int(record.context["models_count"]),
        "catalog_id": record.id,
        "last_updated": str(record.context["last_updated"]),
        "message": message,
    }
