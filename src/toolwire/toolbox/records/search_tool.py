"""The tool that finds records by what they are about, by their tags and type, or by id."""

from typing import Annotated, Any, TypedDict

from toolwire.breadcrumbs.rules.callers import Caller
from toolwire.breadcrumbs.service import LONGEST_TEXT, MOST_FOUND, RecordService
from toolwire.define.fields import Field
from toolwire.errors import ToolFailure
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool
from toolwire.toolbox.records.access import Tags, caller_of, failures, finding, required, tell_read

Found = list[tuple[Record, float]]


class FoundRecordsOutput(TypedDict):
    breadcrumbs: Annotated[list[dict[str, Any]], Field(description="The records found, the best first.")]
    count: Annotated[int, Field(description="How many there are.")]
    method: Annotated[str, Field(description="How they were found, such as vector, text, filter or id.")]


def search_records_tool(records: RecordService | None) -> Tool:
    """The tool `breadcrumb-search`."""

    @finding(
        name="breadcrumb-search",
        examples=({"query": "meeting notes about project", "nn": 5}, {"tags": ["note"], "schema_name": "note.v1"}),
    )
    async def search(
        context: Context,
        query: Annotated[str, Field(max_length=LONGEST_TEXT)] = "",
        nn: Annotated[int, Field(ge=1, le=MOST_FOUND)] = 5,
        tags: Tags = [],  # noqa: B006 - never changed, and [] is what models read
        schema_name: Annotated[str, Field(max_length=128)] = "",
        breadcrumb_id: Annotated[str, Field(max_length=1_000)] = "",
    ) -> FoundRecordsOutput:
        """Find records (breadcrumbs): by what they are about, by tags and type, or one by its id.

        Args:
            query: What they are about, in words.
            nn: At most so many.
            tags: Tags that they all have.
            schema_name: Their type, such as note.v1.
            breadcrumb_id: The id of the one to read.
        """
        service, caller = required(records), caller_of(context)
        with failures():
            if breadcrumb_id:
                method, found = "id", await _by_id(service, breadcrumb_id, caller)
            else:
                wanted = RecordQuery(schema_name, all_tags=tuple(tags))
                method, found = await _found(service, query, wanted, nn, caller)
            shown = [await _view(service, record, score, context) for record, score in found]
        return {"breadcrumbs": shown, "count": len(shown), "method": method}

    return search


async def _by_id(service: RecordService, record_id: str, caller: Caller) -> Found:
    return [(await service.read(record_id, caller), 1.0)]


async def _found(service: RecordService, text: str, query: RecordQuery, nn: int, caller: Caller) -> tuple[str, Found]:
    if text.strip():
        hits = await service.search(text, caller, nn=nn, query=query)
        found = [(hit.record, hit.score) for hit in hits]
        method = hits[0].method if hits else "text"
    elif query.schema_name or query.all_tags:
        found = [(row.value, 1.0) for row in await service.listed(query, caller, limit=nn)]
        method = "filter"
    else:
        raise ToolFailure("say what to look for: a query, tags, a schema_name or an id", code=Code.INVALID_PARAMS)
    return method, found


async def _view(service: RecordService, record: Record, score: float, context: Context) -> dict[str, Any]:
    """A record as its hints show it to models."""
    tell_read(context, record)
    return {**await service.llm_view(record, caller_of(context)), "score": round(score, 4)}
