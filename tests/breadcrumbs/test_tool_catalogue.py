"""The record about the tools of a project, kept current."""

import asyncio
from typing import Any

import pytest

from toolwire.breadcrumbs.catalogue import SEEN_S, ToolCatalogue
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.catalogue import FORGOTTEN_S, TOOL_CATALOG
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import NotPermitted
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.protocol.tools import Effect, Grant, Tool
from toolwire.record.memory import MemoryStore

LAMP = Tool(
    "lamp",
    "Switch a lamp. It is in the attic.",
    {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
    {"type": "object", "properties": {"on": {"type": "boolean"}}},
    category="house",
    version="2",
    effect=Effect.IDEMPOTENT,
    examples=({"on": True},),
    timeout_s=5.0,
)
DOOR = Tool("door", "Open the door", needs=frozenset({"keys"}), category="house")
FAN = Tool("fan", "Turn the fan", category="house")
GRANT = Grant()
MODEL = Caller("ann", Role.MODEL)


class House:
    """A project with a clock that can be set."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self.records = RecordService(MemoryStore(), "house", clock=lambda: self.now)
        self.catalogue = ToolCatalogue(self.records, clock=lambda: self.now)

    async def refresh(self, *tools: Tool, grant: Grant = GRANT) -> Record:
        return await self.catalogue.refresh(tools, grant)


def states(record: Record) -> dict[str, str]:
    return {tool["name"]: tool["status"] for tool in record.context["tools"]}


@pytest.mark.feature("F052", "F053")
async def test_the_catalogue_counts_tools_and_tells_all_about_each() -> None:
    record = await House().refresh(LAMP, DOOR)
    assert (record.schema_name, record.created_by, record.version) == (TOOL_CATALOG, "toolwire", 1)
    context = record.context
    assert (context["totalTools"], context["activeTools"], context["workspace"]) == (2, 1, "house")
    lamp = dict(context["tools"][0])
    assert lamp.pop("lastSeenAt") == 1_800_000_000.0
    assert lamp == {
        "name": "lamp",
        "description": LAMP.description,
        "category": "house",
        "version": "2",
        "inputSchema": LAMP.input_schema,
        "outputSchema": LAMP.output_schema,
        "examples": [{"input": {"on": True}}],
        "capabilities": {"async": False, "timeout": 5.0, "retries": True},
        "status": "active",
        "lastSeen": "2027-01-15T08:00:00+00:00",
    }
    assert states(record) == {"lamp": "active", "door": "inactive"}


@pytest.mark.feature("F231")
async def test_tools_that_come_go_and_change_are_seen_and_nothing_is_written_without_need() -> None:
    house = House()
    first = await house.refresh(LAMP)
    house.now += 60
    assert await house.refresh(LAMP) == first
    second = await house.refresh(LAMP, FAN)
    assert (second.id, second.version, second.context["activeTools"]) == (first.id, 2, 2)
    house.now += 60
    third = await house.refresh(FAN)
    assert states(third) == {"fan": "active", "lamp": "inactive"}
    gone = next(tool for tool in third.context["tools"] if tool["name"] == "lamp")
    assert gone["lastSeenAt"] == house.now - 60
    house.now += SEEN_S + 1
    fourth = await house.refresh(FAN)
    assert fourth.version == 4
    assert fourth.context["tools"][0]["lastSeenAt"] == house.now
    house.now += FORGOTTEN_S
    assert states(await house.refresh(FAN)) == {"fan": "active"}
    granted = await house.refresh(FAN, DOOR, grant=Grant(permissions=frozenset({"keys"})))
    assert granted.context["activeTools"] == 2


async def test_several_processes_keep_one_record() -> None:
    house = House()
    kept = await asyncio.gather(*(house.refresh(LAMP, FAN) for _ in range(5)))
    assert len({record.id for record in kept}) == 1
    assert len(await house.records.listed(RecordQuery(schema_name=TOOL_CATALOG), RUNTIME)) == 1


async def test_a_model_is_shown_one_line_for_each_tool_that_it_can_call() -> None:
    house = House()
    record = await house.refresh(LAMP, DOOR)
    view = await house.records.llm_view(record, MODEL)
    lines = "[house]\nlamp(on: boolean) -> on — Switch a lamp"
    assert view["context"] == {"activeTools": 1, "compact": lines}


async def test_the_catalogue_is_written_by_the_runtime_alone() -> None:
    house = House()
    record = await house.refresh(LAMP)
    forged: dict[str, Any] = {"context": {"activeTools": 99}}
    for role in (Role.MODEL, Role.WRITER, Role.ADMIN):
        with pytest.raises(NotPermitted, match="reserved"):
            await house.records.patch(record.id, forged, 1, Caller("eve", role))
