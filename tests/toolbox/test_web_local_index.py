"""Searching without a network."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toolbox.conftest import Call
from toolwire.errors import SettingsError
from toolwire.toolbox.web.local_index import LocalIndex
from toolwire.toolbox.web.search import search_tool


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "tea.md").write_text("# Tea\n\nHow to boil green tea.\n")
    (folder / "deep" / "cups.html").write_text("<title>Cups</title><p>Tea cups<script>green()</script> of clay")
    (folder / "coffee.txt").write_text("Coffee\nNothing about leaves.")
    (folder / "secret.key").write_text("green tea key")
    (folder / "link.md").symlink_to(folder / "secret.key")
    return folder


@pytest.mark.feature("F246")
async def test_documents_of_a_folder_are_found_by_their_words(call: Call, documents: Path) -> None:
    index = LocalIndex()
    assert index.add_folder(str(documents), "https://docs.example/") == 3

    found = await call(search_tool(index), query="Green TEA!")
    any_word = await call(search_tool(index), query="tea leaves")
    index.close()

    assert [(row["title"], row["url"]) for row in found["results"]] == [("Tea", "https://docs.example/tea.md")]
    assert "boil green tea" in found["results"][0]["snippet"]
    assert {row["url"].rpartition("/")[2] for row in any_word["results"]} == {"tea.md", "cups.html", "coffee.txt"}
    assert found["backend"] == "local"


async def test_a_document_replaces_its_earlier_self(call: Call) -> None:
    index = LocalIndex()
    index.add("a", "Old", "green tea")
    index.add("a", "New", "black tea")

    found = await call(search_tool(index), query="tea")
    index.close()

    assert [row["title"] for row in found["results"]] == ["New"]


async def test_an_index_in_a_file_is_there_the_next_time(call: Call, tmp_path: Path) -> None:
    first = LocalIndex(str(tmp_path / "index"))
    first.add("a", "Tea", "green tea")
    first.close()

    second = LocalIndex(str(tmp_path / "index"))
    found = await call(search_tool(second), query="tea")
    second.close()

    assert found["count"] == 1


def test_a_file_that_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("this is not a database, but a long enough text to be read as one" * 20)

    with pytest.raises(SettingsError, match="cannot be used"):
        LocalIndex(str(tmp_path / "index"))


@given(st.text(min_size=1, max_size=60))
def test_any_words_can_be_searched_for(query: str) -> None:
    index = LocalIndex()
    index.add("a", "Tea", "green tea AND NOT NEAR black")
    try:
        assert len(asyncio.run(index.search(query, 5))) <= 1
    finally:
        index.close()
