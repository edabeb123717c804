"""A mutant differs in one place, and running code takes it on."""

import functools
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tests.caches import clear_caches
from tests.mutation import coverage, subjects, tables
from tests.mutation.mutants import apply, mutants
from toolwire.decide.shell import read_shell

SOURCE = """
LIMIT = 3

def allowed(count, wish):
    \"\"\"Words.\"\"\"
    if count < LIMIT and not wish:
        return True
    return [one + 1 for one in wish if one]

class Box:
    @staticmethod
    def size(of):
        return of * 2
"""

SUPER = """
class Base:
    def size(self):
        return 1

class Box(Base):
    def size(self):
        return super().size() + 1
"""


def loaded(tmp_path: Path) -> ModuleType:
    module = ModuleType("mutated")
    module.__file__ = str(tmp_path / "mutated.py")
    exec(compile(SOURCE, module.__file__, "exec"), vars(module))
    return module


def test_each_mutant_has_one_change() -> None:
    found = [(mutant.line, mutant.before, mutant.after) for mutant in mutants(SOURCE)]

    assert (6, "count < LIMIT", "count <= LIMIT") in found
    assert (6, "count < LIMIT and (not wish)", "count < LIMIT or not wish") in found
    assert (7, "return True", "return None") in found
    assert (7, "True", "False") in found
    assert (8, "one + 1", "one - 1") in found
    assert (13, "of * 2", "of // 2") in found
    assert all(before != after for _, before, after in found)
    assert not any("Words" in before and "def" not in before for _, before, _ in found), "a docstring does nothing"


def test_a_loaded_function_takes_on_a_mutant_and_nothing_else_changes(tmp_path: Path) -> None:
    for mutant in mutants(SOURCE):
        module = loaded(tmp_path)
        before = vars(module)["allowed"], vars(module)["Box"]
        changed = apply(mutant, module)

        assert (vars(module)["allowed"], vars(module)["Box"]) == before
        assert changed == (mutant.line > 2), mutant
        if mutant.after == "of // 2":
            assert before[1].size(6) == 3
        if mutant.after == "count <= LIMIT":
            assert before[0](3, []) is True
    assert "mutated" not in sys.modules


def test_a_mutant_that_does_not_fit_into_its_method_is_not_counted(tmp_path: Path) -> None:
    source = SUPER
    module = ModuleType("mutated")
    module.__file__ = str(tmp_path / "mutated.py")
    exec(compile(source, module.__file__, "exec"), vars(module))
    found = {mutant.after: apply(mutant, module) for mutant in mutants(source) if mutant.function == "Box.size"}

    assert found == {"return None": False, "super().size() - 1": True, "2": True}


def test_a_mutant_says_in_which_function_it_is() -> None:
    found = {(mutant.function, mutant.after) for mutant in mutants(SOURCE)}

    assert {("allowed", "count <= LIMIT"), ("Box.size", "of // 2"), ("", "LIMIT = None")} <= found


def test_lines_are_traced_in_the_files_that_are_asked_about(tmp_path: Path) -> None:
    module = loaded(tmp_path)
    allowed = vars(module)["allowed"]

    with coverage.traced(frozenset({str(module.__file__)})) as lines:
        allowed(1, [])
    with coverage.traced(frozenset({"elsewhere.py"})) as none:
        allowed(1, [])

    assert {number for _, number in lines} == {4, 6, 7}
    assert none == set()


def test_a_package_stands_for_its_modules_and_the_longest_name_chooses_the_tests() -> None:
    assert "decide.ladder" in subjects.modules(["decide"])
    assert subjects.tests_of("decide.habits") == subjects.TESTS["decide"]
    assert subjects.tests_of("record.ledger") != subjects.tests_of("record.owners")
    assert subjects.modules(["decide.ladder", "decide.ladder"]) == ["decide.ladder"]
    with pytest.raises(SystemExit, match=r"no module toolwire\.nowhere"):
        subjects.modules(["nowhere"])


def test_all_tests_of_subjects_exist() -> None:
    root = tables.SOURCE.parents[1]
    assert [path for paths in subjects.TESTS.values() for path in paths if not (root / path).exists()] == []


def test_figures_of_a_run_take_the_place_of_those_of_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "figures.tsv"
    path.write_text("module\tmutants\tkilled\texplained\n")

    tables.keep([tables.Figure("b", 20, 18, 1), tables.Figure("a", 10, 5, 0)], path)
    tables.keep([tables.Figure("a", 10, 9, 0)], path)

    assert tables.figures(path) == [tables.Figure("a", 10, 9, 0), tables.Figure("b", 20, 18, 1)]
    assert [f"{one.percent:.1f}" for one in tables.figures(path)] == ["90.0", "94.7"]
    assert tables.Figure("only_names", 0, 0, 0).percent == 100


def test_a_figure_tells_whether_its_module_has_changed_since(tmp_path: Path) -> None:
    path = tmp_path / "figures.tsv"
    path.write_text("module\tmutants\tkilled\texplained\tsource\n", encoding="utf-8")
    now = tables.source_digest("loop.step")
    measured = [tables.Figure("gone", 1, 1, 0, now), tables.Figure("loop.step", 1, 1, 0, now)]
    tables.keep(measured, path)

    assert tables.figures(path) == measured
    assert [one.is_stale for one in measured] == [True, False]
    assert replace(measured[1], source="other").is_stale


def test_a_page_of_figures_is_not_out_of_date_because_code_has_changed() -> None:
    page = tables.page()
    aged = page.replace("| same |", "| changed |")

    assert "| code since |" in page
    assert tables.without_age(aged) == tables.without_age(page)
    assert tables.without_age(page.replace("90 %", "91 %")) != tables.without_age(page)


def test_stale_stands_for_the_modules_that_have_changed() -> None:
    assert subjects.modules([subjects.STALE]) == tables.stale_modules()


@pytest.mark.parametrize("figure", tables.figures(), ids=lambda figure: figure.module)
def test_enough_mutants_of_a_module_are_killed(figure: tables.Figure) -> None:
    assert figure.percent >= tables.LIMIT


def test_every_explained_survivor_is_a_mutant_of_today() -> None:
    """A row that fits nothing would explain nothing. Take it out, or write it as `make mutate` shows the mutant now."""
    known = {
        (name, mutant.function, mutant.before, mutant.after)
        for name in {one.module for one in tables.survivors()}
        for mutant in mutants(tables.SOURCE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    }
    assert [one for one in tables.survivors() if one.key not in known] == []
    assert all(one.reason for one in tables.survivors())


@functools.cache
def _cached(number: int) -> int:
    return number


def test_only_our_own_caches_are_cleared() -> None:
    _cached(1)
    read_shell("ls")
    assert read_shell.cache_info().currsize > 0

    clear_caches()

    assert read_shell.cache_info().currsize == 0
    assert _cached.cache_info().currsize == 1
