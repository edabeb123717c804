"""Reports of services are received whatever is wrong with the registry of their project."""

import json
from pathlib import Path

from tests.fleet.test_reports import ROW
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.report_link import find_tool
from toolwire.define.service_rows import read_row
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.records import CallCard
from toolwire.record.memory import MemoryStore
from toolwire.settings import load


async def test_a_registry_that_contradicts_itself_costs_no_result(tmp_path: Path) -> None:
    folder, store = tmp_path / "shop", MemoryStore()
    folder.mkdir()
    (folder / "tools.json").write_text(json.dumps([{**ROW, "description": "Searches elsewhere."}]))
    (folder / "toolwire.toml").write_text(
        '[bus]\nkind = "nats"\nurl = ["nats://127.0.0.1:1"]\n[registry]\nfiles = []\n'
    )
    place = ProjectFolder(folder, {}, load(folder, {"TOOLWIRE_TRUST": str(folder)}))
    row = read_row(ROW, "the row", project=place.name)
    await store.register_tools([row.row])
    call = ToolCall("search", {}, "call-1")
    card = CallCard("card-1", "turn-1", 1, call, "0" * 64, project=place.name, tool_version=row.tool.version)

    found = await find_tool(place, store, place.name, card)
    assert found is not None
    (folder / "toolwire.toml").write_text((folder / "toolwire.toml").read_text().replace("[]", '["tools.json"]'))
    contradicted = ProjectFolder(folder, {}, load(folder, {"TOOLWIRE_TRUST": str(folder)}))
    assert await find_tool(contradicted, store, place.name, card) is None
