import asyncio

from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import InvalidRecord, NotPermitted, VersionConflict
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.record.memory import MemoryStore

ANN, HELPER = Caller("ann", Role.ADMIN), Caller("helper", Role.MODEL)
NOTE_TYPE = {"defines_schema": "note.v1", "json_schema": {"type": "object", "required": ["colour"]}}


async def main() -> None:
    records = RecordService(MemoryStore(), "default")
    await records.create(NewRecord("schema.def.v1", "Notes", context=NOTE_TYPE), ANN)

    door = await records.create(NewRecord("note.v1", "Door", ("house",), {"colour": "red"}), HELPER)
    gate = await records.patch(door.id, {"title": "Gate", "context": {"size": 2}}, door.version, ANN)
    assert (gate.version, gate.context) == (2, {"colour": "red", "size": 2})
    assert [row.value.title for row in await records.listed(RecordQuery(all_tags=("house",)), HELPER)] == ["Gate"]

    for change, refused in (
        (records.patch(door.id, {"title": "Late"}, door.version, HELPER), VersionConflict),
        (records.create(NewRecord("note.v1", context={"size": 2}), HELPER), InvalidRecord),
        (records.create(NewRecord("agent.def.v1"), HELPER), NotPermitted),
    ):
        try:
            await change
        except refused as wrong:
            print(wrong)


asyncio.run(main())
