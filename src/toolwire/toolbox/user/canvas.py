"""A page that the user sees, and the list of machines that are known.

A page is made of blocks whose words are escaped; it has no script, loads nothing, and links nowhere.
"""

import base64
import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from html import escape
from pathlib import Path
from typing import Annotated, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolwire.define.functions import tool
from toolwire.deliver.visible import visible
from toolwire.errors import ToolFailure
from toolwire.protocol.calls import Resource, Text, ToolOutput
from toolwire.protocol.files import Change, FileOps
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.record.ownership import open_inner
from toolwire.toolbox.disk.local_files import LocalFiles
from toolwire.toolbox.files.granted_paths import wrong

MOST_BLOCKS = 200
LARGEST_PAGE = 512 * 1024
NO_NODES = "no other machines are known here: none runs an edge agent for this project"

STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse } td, th { border: 1px solid #bbb; padding: .3rem .6rem; text-align: left }
pre { background: #f4f4f4; padding: .8rem; overflow-x: auto } p { white-space: pre-wrap }"""
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"

Words = Annotated[str, Field(max_length=50_000)]


class Block(TypedDict, total=False):
    kind: Annotated[Literal["heading", "text", "code", "list", "table"], Field(description="What it looks like.")]
    text: Annotated[Words, Field(description="The words of a heading, text or code.")]
    items: Annotated[list[Words], Field(max_length=1000, description="The items of a list.")]
    rows: Annotated[
        list[list[Words]], Field(max_length=1000, description="The rows of a table; the first has the headings.")
    ]


class CanvasOutput(TypedDict):
    page: Annotated[str, Field(description="The page's name.")]
    path: Annotated[str, Field(description="The file that the user can open; empty when it is removed.")]
    bytes: Annotated[int, Field(description="The size of the page.")]
    pages: Annotated[list[str], Field(description="All pages that there are now.")]


class Node(TypedDict):
    name: Annotated[str, Field(description="The machine.")]
    state: Annotated[str, Field(description="Whether it can be reached now.")]
    tools: Annotated[list[str], Field(description="What it can do.")]
    load: NotRequired[Annotated[str, Field(description="How many calls it runs, of how many at once.")]]
    platform: NotRequired[Annotated[str, Field(description="What it runs on.")]]
    seen_s: NotRequired[Annotated[float | None, Field(description="Seconds since it last gave a sign of life.")]]


class NodesOutput(TypedDict):
    nodes: Annotated[list[Node], Field(description="The machines that are known.")]
    note: Annotated[str, Field(description="Why there are none; empty if there are.")]


def canvas_tool(folder: Path, files: FileOps | None = None) -> Tool:
    """The tool that shows pages to the user, kept as HTML files in `folder`."""
    files = files or LocalFiles()

    @tool(
        name="canvas",
        tier=Tier.WALK,
        effect=Effect.IDEMPOTENT,
        category="interaction",
        writes=("canvas",),
        output_schema=TypeAdapter(CanvasOutput).json_schema(),
        examples=(
            {"title": "Teas", "blocks": [{"kind": "table", "rows": [["Tea", "Minutes"], ["green", "2"]]}]},
            {"page": "plan", "action": "remove"},
        ),
    )
    def canvas(
        page: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")] = "main",
        action: Literal["show", "remove"] = "show",
        title: Annotated[str, Field(max_length=200)] = "",
        blocks: Annotated[list[Block], Field(max_length=MOST_BLOCKS)] = [],  # noqa: B006 - never changed
    ) -> ToolOutput:
        """Show the user a page of headings, text, code, lists and tables, in place of what the page showed before.

        Args:
            page: Which page: small letters, digits and hyphens.
            action: show writes the page anew, remove takes it away.
            title: What stands above it.
            blocks: What is on it, from top to bottom.
        """
        body = render(title or page, blocks) if action == "show" else None
        _keep(files, folder, f"{page}.html", body)
        return _output(folder, page, title, body)

    return canvas


def nodes_tool(known: Callable[[], Awaitable[Sequence[Node]]] | None = None) -> Tool:
    """The tool that lists the machines which `known` tells of; without it there are none."""

    @tool(name="nodes", tier=Tier.CRAWL, effect=Effect.PURE, category="interaction", polling=True, examples=({},))
    async def nodes() -> NodesOutput:
        """List the other machines that are known here, and what each can do."""
        found = list(await known()) if known else []
        return {"nodes": found, "note": "" if found else NO_NODES}

    return nodes


def render(title: str, blocks: Sequence[Block]) -> bytes:
    """The page. Raises ToolFailure for one that is too large."""
    parts = "\n".join(_block(block) for block in blocks)
    shown = _words(title)
    page = (
        f'<!doctype html>\n<html><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">\n'
        f'<meta name="referrer" content="no-referrer">\n<title>{shown}</title>\n<style>{STYLE}</style></head>\n'
        f"<body><h1>{shown}</h1>\n{parts}\n</body></html>\n"
    )
    body = page.encode("utf-8", "replace")
    if len(body) > LARGEST_PAGE:
        raise wrong(f"the page has {len(body):,} bytes; {LARGEST_PAGE:,} are the most")
    return body


def _block(block: Block) -> str:
    text = _words(block.get("text", ""))
    match block.get("kind", "text"):
        case "heading":
            return f"<h2>{text}</h2>"
        case "code":
            return f"<pre><code>{text}</code></pre>"
        case "list":
            return f"<ul>{''.join(f'<li>{_words(item)}</li>' for item in block.get('items', []))}</ul>"
        case "table":
            return f"<table>{''.join(_row(row, at) for at, row in enumerate(block.get('rows', [])))}</table>"
        case _:
            return f"<p>{text}</p>"


def _row(cells: Sequence[str], at: int) -> str:
    tag = "td" if at else "th"
    return f"<tr>{''.join(f'<{tag}>{_words(cell)}</{tag}>' for cell in cells)}</tr>"


def _words(text: str) -> str:
    return escape(visible(text))


def _keep(files: FileOps, folder: Path, name: str, body: bytes | None) -> None:
    try:
        os.close(open_inner(folder))
        files.change(str(folder), [Change(name, body)])
    except FileNotFoundError:
        raise wrong(f"there is no page {name.removesuffix('.html')!r}") from None
    except OSError as error:
        raise ToolFailure(f"the page cannot be kept: {error.strerror or error}") from None


def _output(folder: Path, page: str, title: str, body: bytes | None) -> ToolOutput:
    path = str(folder / f"{page}.html")
    pages = sorted(file.stem for file in folder.glob("*.html"))
    facts: CanvasOutput = {"page": page, "path": path if body else "", "bytes": len(body or b""), "pages": pages}
    if body is None:
        return ToolOutput((Text(f"The page {page!r} is removed."),), facts)
    said = Text(f"The user can see the page {page!r} now: {path}")
    return ToolOutput((said, Resource(f"canvas:{page}", title or page, "text/html")), facts)
