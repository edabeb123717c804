"""Where toolwire does not run, it says so: a system without fcntl stands for Windows."""

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = """
import sys
MISSING = {"fcntl", "termios", "pwd", "grp", "resource"}
class Refuse:
    def find_spec(self, name, *more):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}")
sys.meta_path.insert(0, Refuse())
"""


def run(code: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    script = folder / words[0] if words else folder / "own.py"
    script.write_text(BLOCKED + code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script), *words[1:]], capture_output=True, text=True, timeout=60, check=False, cwd=folder
    )


@pytest.mark.parametrize(("name", "module"), [("toolwire", "toolwire.cli"), ("te", "toolwire.te.main")])
def test_a_command_ends_with_one_sentence_where_it_cannot_run(tmp_path: Path, name: str, module: str) -> None:
    ran = run(f"from {module} import main; main()", tmp_path, name, "tools", "list")
    assert ran.returncode == 1
    assert ran.stderr == (
        "toolwire runs on Linux; this system lacks what it needs (fcntl). On Windows, use it inside WSL.\n"
    )


def test_a_program_that_imports_it_gets_an_import_error_with_the_sentence(tmp_path: Path) -> None:
    ran = run("try:\n    import toolwire\nexcept ImportError as error:\n    print('caught:', error)", tmp_path)
    assert ran.stdout.startswith("caught: toolwire runs on Linux;")


def test_the_package_says_for_which_system_it_is() -> None:
    classifiers = (Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert '"Operating System :: POSIX :: Linux"' in classifiers
