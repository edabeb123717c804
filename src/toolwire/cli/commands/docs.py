"""`toolwire docs`: the pages of documentation that come with the package."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from toolwire.cli.entry.exits import Exit
from toolwire.cli.terminal.text import clean
from toolwire.errors import NotFound

_PACKAGE = Path(__file__).parents[2]
_PLACES = (_PACKAGE / "docs", _PACKAGE.parent.parent / "docs")
"""In an installed package, and in a checkout of the repository."""


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="The page, e.g. settings; without it, all are listed.")
    ] = None,
) -> Exit:
    """Show a page of the documentation that comes with this version, or list the pages."""
    found = next((place for place in _PLACES if place.is_dir()), None)
    pages = {file.stem: file for file in sorted(found.glob("*.md"))} if found else {}
    if page is None:
        for name, file in sorted(pages.items()):
            typer.echo(f"{name:<22}{_title(file)}")
        return Exit.DONE
    name = page.removeprefix("docs/").removesuffix(".md").lower()
    if name not in pages:
        near = get_close_matches(name[:40], pages, 1)
        advice = f"did you mean {near[0]}?" if near else "`toolwire docs` lists the pages."
        raise NotFound(f"there is no page {page[:80]!r}; {advice}")
    typer.echo(clean(pages[name].read_text(encoding="utf-8")), nl=False)
    return Exit.DONE


def _title(file: Path) -> str:
    with file.open(encoding="utf-8") as page:
        return page.readline().lstrip("# ").strip()
