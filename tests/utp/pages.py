"""Writes docs/protocol/: the JSON Schemas, and the tables of fields in docs/protocol.md."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolwire.wire.utp import fields
from toolwire.wire.utp.fields import WireField
from toolwire.wire.utp.schemas import schemas

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = DOCS / "protocol.md"
TABLE = re.compile(r"(<!-- fields: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)

TABLES: dict[str, tuple[tuple[WireField, ...], tuple[str, ...]]] = {
    "command": (fields.COMMAND_FIELDS, fields.TOOL_REQUIRED),
    "callback": (fields.CALLBACK_FIELDS, fields.CALLBACK_REQUIRED),
    "wakeup": (fields.WAKEUP_FIELDS, fields.WAKEUP_REQUIRED),
}


def page() -> str:
    return TABLE.sub(lambda mark: mark[1] + _table(mark[2]), PAGE.read_text(encoding="utf-8"))


def _table(name: str) -> str:
    rows, required = TABLES[name]
    lines = ["| field | header | required | meaning |", "|---|---|---|---|"]
    for row in rows:
        pmo = name == "command" and row.name in fields.PMO_REQUIRED
        need = "yes" if row.name in required else "PMO" if pmo else ""
        lines.append(f"| `{row.name}` | {f'`{row.header}`' if row.header else ''} | {need} | {row.about} |")
    return "\n".join(lines) + "\n"


def _written(schema: dict[str, Any]) -> Callable[[], str]:
    return lambda: json.dumps(schema, indent=2) + "\n"


def written() -> dict[Path, Callable[[], str]]:
    """Every file that is made from the code, and how."""
    files = {DOCS / "protocol" / f"{name}.schema.json": _written(schema) for name, schema in schemas().items()}
    return {PAGE: page, **files}
