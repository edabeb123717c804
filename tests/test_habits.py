"""The project's own promises about itself."""

import re
from pathlib import Path

import pytest

from tests.features import PAGE, features, page
from tests.marks import TESTS, carriers, silent_returns
from tests.programs import ESSENTIAL, all_started, installed_by_make, started
from tests.requirements import REQUIREMENTS

ROOT = Path(__file__).parent.parent


def test_every_requirement_is_carried_by_a_test_and_every_mark_is_known() -> None:
    assert carriers("requirement").keys() == REQUIREMENTS.keys()


def test_every_feature_mark_names_a_feature_of_the_product() -> None:
    assert carriers("feature").keys() <= {feature.id for feature in features()}


def test_the_features_page_is_current() -> None:
    """Run `make docs` when this fails."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.feature("F263")
def test_every_verb_of_the_journey_has_tests_of_its_own() -> None:
    verbs = (
        "define",
        "disclose",
        "decide",
        "execute",
        "record",
        "loop",
        "models",
        "toolbox",
        "cli",
        "settings",
        "wire",
        "plan",
        "deliver",
    )
    without = [verb for verb in verbs if not list((TESTS / verb).glob("test_*.py"))]
    assert without == []


@pytest.mark.feature("F270")
def test_the_plan_says_what_counts_as_success() -> None:
    plan = (PAGE.parent / "plan.md").read_text(encoding="utf-8")
    criteria = plan.partition("## What counts as success")[2].strip().splitlines()
    assert sum(line.startswith("- ") for line in criteria) >= 5


@pytest.mark.feature("F269")
def test_the_plan_names_every_part_of_the_product() -> None:
    """We chose to keep the phased plan in one page, and to count its parts from the table of features."""
    plan = (PAGE.parent / "plan.md").read_text(encoding="utf-8")
    for part in {feature.part for feature in features()}:
        assert f"`{part}`" in plan


def test_no_test_starts_a_program_that_make_does_not_install() -> None:
    """A program that lies on one machine by chance makes a test pass there and fail on a new one."""
    known = ESSENTIAL | installed_by_make()

    assert {program: module for program, module in all_started().items() if program not in known} == {}


def test_a_program_that_a_test_starts_is_found_in_any_of_the_usual_spellings() -> None:
    text = """
FOUND = shutil.which("fig", path="/opt/bin")
LINE = ["date", "-u"]
subprocess.run(["uv", *words], check=True)
subprocess.Popen("apple --peel", shell=True)
await asyncio.create_subprocess_exec("/usr/bin/pear", "-c")
subprocess.run(LINE)
subprocess.run([sys.executable, "-c", "plum"])
"""
    assert sorted(started(text)) == ["apple", "date", "fig", "pear", "uv"]


def test_no_test_ends_early_in_silence() -> None:
    """Where something is missing, a test fails, or skips so that the run lists it at its end."""
    found = {
        path.relative_to(TESTS).as_posix(): names
        for path in sorted(TESTS.rglob("test_*.py"))
        if (names := silent_returns(path.read_text(encoding="utf-8")))
    }
    assert found == {}


EARLY = """
def test_engine():
    if not usable():
        return
    assert works()

@given(text())
def test_any_text(text):
    if not text:
        return
    assert read(text)

def test_inner():
    def one():
        return 1
    assert one() == 1
"""


def test_the_check_for_silent_ends_finds_them_and_nothing_else() -> None:
    assert silent_returns(EARLY) == ["test_engine"]


def test_what_is_repeated_possessively_is_one_character_or_an_atomic_group() -> None:
    """Python before 3.11.5 takes the beginning of a repetition that fails for a part of the match.

    `(?:"[^"]*")*+` reads too far where a string is not closed, and `(?>"[^"]*")*+` does not.
    """
    sources = [path for path in (ROOT / "src").rglob("*.py") if path.name != "intent_weights.py"]  # base85
    ends = [
        (line, end.start())
        for path in sources
        for line in path.read_text(encoding="utf-8").splitlines()
        for end in re.finditer(r"[^(]\)(?:[*+?]|\{[0-9,]+\})\+", line)
    ]

    assert ends
    assert [line.strip() for line, end in ends if not _group(line[: end + 1]).startswith("(?>")] == []


def test_groups_of_tasks_are_those_that_leave_the_task_around_them_as_it_was() -> None:
    users = [path.name for path in (ROOT / "src").rglob("*.py") if "asyncio.TaskGroup" in path.read_text("utf-8")]
    assert users == ["task_groups.py"]


def _group(text: str) -> str:
    """What an unclosed parenthesis begins, up to the end of this text."""
    still_open = list[int]()
    for place, character in enumerate(text):
        if text[place - 1 : place] != "\\":
            if character == "(":
                still_open.append(place)
            elif character == ")":
                still_open.pop()
    return text[still_open[-1] :]
