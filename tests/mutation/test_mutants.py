"""A mutant differs in one place, and running code takes it on."""

import sys
from pathlib import Path
from types import ModuleType

from tests.mutation.mutants import apply, mutants

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
