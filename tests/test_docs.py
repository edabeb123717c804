"""Docs that run: every snippet is executed, and every page shows the snippet as it is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import stale
from toolwire.models.weights import KNOWN

ROOT = Path(__file__).parent.parent
SNIPPETS = sorted((ROOT / "docs" / "snippets").glob("*.py"))
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "tour.py")  # see tests/local
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARK = re.compile(r"<!-- snippet: (\S+) -->\n(?:```python\n(.*?)```\n)?", re.DOTALL)


@pytest.mark.parametrize("path", [*SNIPPETS, *EXAMPLES], ids=lambda path: path.name)
def test_code_in_the_docs_runs(path: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_show_the_snippets_as_they_are(page: Path) -> None:
    """Run `make docs` when this fails."""
    for name, shown in MARK.findall(page.read_text(encoding="utf-8")):
        assert shown == (ROOT / "docs" / "snippets" / name).read_text(encoding="utf-8"), name


def test_every_snippet_is_shown_somewhere() -> None:
    shown = {name for page in PAGES for name, _ in MARK.findall(page.read_text(encoding="utf-8"))}
    assert shown == {path.name for path in SNIPPETS}


def test_generated_pages_are_current() -> None:
    """Run `make docs` when this fails."""
    assert stale() == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, *sorted((ROOT / "docs" / "decisions").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_page_for_contributors_names_files_that_exist() -> None:
    named = re.findall(r"`((?:src|tests)/[\w./]+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_readme_tells_the_size_of_the_weights_as_the_program_does() -> None:
    told = re.findall(r"weights \((\d+) MB\)", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert told == [f"{KNOWN['smollm2'].size / 1e6:.0f}"]


def test_every_decision_has_a_number_of_its_own() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [page.read_text(encoding="utf-8").split("\n", 1)[0] for page in pages]

    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert [title.split(".")[0] for title in titles] == [f"# {number}" for number in range(1, len(pages) + 1)]
