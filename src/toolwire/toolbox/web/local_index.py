"""A search backend that needs no network: an index of documents on this machine."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from toolwire.errors import SettingsError, ToolFailure
from toolwire.toolbox.web.charsets import decode_page
from toolwire.toolbox.web.readable import ReadablePage, readable
from toolwire.toolbox.web.search import SearchResult

KINDS = frozenset((".md", ".txt", ".rst", ".html", ".htm"))
LARGEST_FILE = 2 * 1024 * 1024
MOST_FILES = 100_000
MOST_WORDS = 20
_SNIPPET_WORDS = 40

_SCHEMA = "CREATE VIRTUAL TABLE IF NOT EXISTS pages USING fts5(url UNINDEXED, title, text, tokenize='unicode61')"
_SEARCH = """\
SELECT url, title, snippet(pages, 2, '', '', ' … ', ?) FROM pages WHERE pages MATCH ?
ORDER BY bm25(pages, 0.0, 4.0, 1.0), rowid LIMIT ?"""


class LocalIndex:
    """Documents by their words, kept in a file of SQLite or in memory. Pages with all words come first."""

    name = "local"

    def __init__(self, path: str = ":memory:") -> None:
        self._lock = threading.Lock()
        try:
            self._database = _opened(path)
        except sqlite3.Error as wrong:
            raise SettingsError(f"the search index {path!r} cannot be used: {wrong}") from None

    def add(self, url: str, title: str, text: str) -> None:
        """Keep a document, in place of an earlier one with the same address."""
        with self._lock:
            self._database.execute("BEGIN")
            self._database.execute("DELETE FROM pages WHERE url = ?", (url,))
            self._database.execute("INSERT INTO pages VALUES (?, ?, ?)", (url, title, text))
            self._database.execute("COMMIT")

    def add_folder(self, folder: str, base: str = "") -> int:
        """Keep all text, Markdown and HTML files of a folder, under `base` and their path, and say how many."""
        count = 0
        for path in _documents(Path(folder)):
            page = _page(path)
            self.add(f"{base}{path.relative_to(folder).as_posix()}", page.title, page.text)
            count += 1
        return count

    async def search(self, query: str, count: int) -> list[SearchResult]:
        return await asyncio.to_thread(self._search, query, count)

    def close(self) -> None:
        """Let go of the file. Harmless when called twice."""
        self._database.close()

    def _search(self, query: str, count: int) -> list[SearchResult]:
        words = _words(query)
        if not words:
            return []
        try:
            with self._lock:
                found = self._rows(" AND ".join(words), count)
                return found or self._rows(" OR ".join(words), count)
        except sqlite3.Error as wrong:
            raise ToolFailure(f"the search index cannot be read: {wrong}") from None

    def _rows(self, match: str, count: int) -> list[SearchResult]:
        rows = self._database.execute(_SEARCH, (_SNIPPET_WORDS, match, count))
        return [SearchResult(title or url, url, " ".join(snippet.split())) for url, title, snippet in rows]


class IndexedFolder:
    """The documents of one folder, read when something is searched for the first time."""

    name = "local"

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._index: LocalIndex | None = None
        self._reading = threading.Lock()

    async def search(self, query: str, count: int) -> list[SearchResult]:
        index = await asyncio.to_thread(self._read)
        return await index.search(query, count)

    def close(self) -> None:
        """Forget what was read. Harmless when called twice."""
        index, self._index = self._index, None
        if index is not None:
            index.close()

    def _read(self) -> LocalIndex:
        with self._reading:
            if self._index is None:
                index = LocalIndex()
                index.add_folder(self._folder)
                self._index = index
            return self._index


def _opened(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        database.execute(_SCHEMA)
    except sqlite3.Error:
        database.close()
        raise
    return database


def _words(query: str) -> list[str]:
    """The words of a query, quoted, so that none of them is an operator of the index."""
    spaced = "".join(char if char.isalnum() else " " for char in query)
    return [f'"{word}"' for word in spaced.split()[:MOST_WORDS]]


def _documents(folder: Path) -> Iterator[Path]:
    """The documents beneath a folder, in order; links are not followed."""
    count = 0
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            if path.suffix.lower() in KINDS and not path.is_symlink() and path.is_file() and count < MOST_FILES:
                count += 1
                yield path


def _page(path: Path) -> ReadablePage:
    with path.open("rb") as file:
        text = decode_page(file.read(LARGEST_FILE), "")
    if path.suffix.lower() in (".html", ".htm"):
        return readable(text, path.as_uri() if path.is_absolute() else "", markdown=False)
    title = next((line.strip("# \t") for line in text[:2000].splitlines() if line.strip("# \t")), "")
    return ReadablePage(title[:300], text)
