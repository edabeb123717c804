"""Writes the generated pages of docs/ and the help of commands; with `--check` says which are out of date."""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import features, threats
from tests.cli import help_page
from tests.mutation import tables
from tests.utp import pages as protocol
from toolwire.cli.help import stored_pages
from toolwire.protocol.providers import CHAT_APIS, PROVIDERS

DOCS = Path(__file__).parent.parent / "docs"
SNIPPET = re.compile(r"(<!-- snippet: (\S+) -->\n)(?:```python\n.*?```\n)?", re.DOTALL)


def with_snippets(path: Path) -> str:
    """The page with the code of each snippet below its mark."""

    def shown(mark: re.Match[str]) -> str:
        return f"{mark[1]}```python\n{(DOCS / 'snippets' / mark[2]).read_text(encoding='utf-8')}```\n"

    return SNIPPET.sub(shown, path.read_text(encoding="utf-8"))


PROVIDER_TABLE = re.compile(r"(<!-- table: providers -->\n)(?:\|.*\n)*")


def with_providers(path: Path) -> str:
    """The page with the table of providers below its mark."""
    rows = [
        "| provider | address | variable of the key | tool that asks it |",
        "|---|---|---|---|",
        *(
            f"| `{row.name}` | {row.base_url or 'given'} | {_code(row.key_variable)} | {_code(row.tool)} |"
            for row in PROVIDERS.values()
            if row.api in CHAT_APIS
        ),
    ]
    table = "".join(f"{row}\n" for row in rows)
    return PROVIDER_TABLE.sub(lambda mark: mark[1] + table, path.read_text(encoding="utf-8"))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


PAGES: dict[Path, Callable[[], str]] = {
    DOCS / "features.md": features.page,
    DOCS / "threats.md": threats.page,
    DOCS / "cli.md": help_page.page,
    stored_pages.PAGES: help_page.data,
    DOCS / "guide.md": partial(with_snippets, DOCS / "guide.md"),
    DOCS / "observability.md": partial(with_snippets, DOCS / "observability.md"),
    DOCS / "records.md": partial(with_snippets, DOCS / "records.md"),
    DOCS / "sandbox.md": partial(with_snippets, DOCS / "sandbox.md"),
    DOCS / "settings.md": partial(with_providers, DOCS / "settings.md"),
    tables.PAGE: tables.page,
    **protocol.written(),
    DOCS.parent / "README.md": partial(with_snippets, DOCS.parent / "README.md"),
}


AGING: dict[Path, Callable[[str], str]] = {tables.PAGE: tables.without_age}
"""Pages of which a part grows old without a mistake, and how they read without it."""


def stale() -> list[Path]:
    return [path for path, page in PAGES.items() if not path.exists() or not _is_same(path, page())]


def _is_same(path: Path, page: str) -> bool:
    lasting = AGING.get(path, str)
    return lasting(path.read_text(encoding="utf-8")) == lasting(page)


def main() -> int:
    if "--check" in sys.argv:
        late = stale()
        for path in late:
            sys.stderr.write(f"{path.relative_to(DOCS.parent)} is out of date: run `make docs`\n")
        return 1 if late else 0
    for path, page in PAGES.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
