"""How a run of the tests behaves: it has a folder of its own, and leaves nothing behind."""

import fcntl
import re
from pathlib import Path

import pytest

from tests import forked

ROOT = Path(__file__).parent.parent
PLUGINS = ("-p", "tests.conftest", "-p", "no:schemathesis")  # as in pyproject.toml, which a folder elsewhere has not
AHEAD = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # what is imported already is not rewritten
SHOWN = re.compile(r"^folder (.+)$", re.MULTILINE)
PROBE = """
def test_folder(tmp_path):
    (tmp_path / "kept").write_text("x")
    print(f"\\nfolder {tmp_path}")
"""


FALSE = """
from hypothesis import given, strategies as st

@given(st.lists(st.integers(), min_size=1))
def test_false(numbers):
    assert sum(numbers) * 3 < 3_001
"""


def run(folder: Path, *words: str, text: str = PROBE, code: int = 0) -> str:
    """The output of pytest over one test, by default one that shows its folder."""
    (folder / "test_probe.py").write_text(text, encoding="utf-8")
    probe = str(folder / "test_probe.py")
    done = forked.run_python(
        "-m", "pytest", *PLUGINS, *AHEAD, "-s", probe, *words, cwd=ROOT, ahead=("hypothesis", "pytest")
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_a_run_has_a_folder_of_its_own_and_removes_it(tmp_path: Path) -> None:
    first, second = (Path(SHOWN.findall(run(tmp_path))[0]) for _ in range(2))

    assert first.parts[:3] != second.parts[:3]
    assert first.parent.parent.name.startswith("toolwire-tests-")
    assert not first.parent.parent.exists()


def test_a_run_removes_what_a_killed_one_has_left_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    killed, living = tmp_path / "toolwire-tests-killed", tmp_path / "toolwire-tests-living"
    for folder in (killed, living):
        folder.mkdir()
        (folder / "lock").touch()
    with (living / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(tmp_path)

    assert (killed.exists(), living.exists()) == (False, True)


SWEPT = """
import sys
from pathlib import Path
from tests import run_folders

swept, now = [], []

def another_run(event, _):
    if event.startswith(("tempfile.", "open", "fcntl.", "os.")) and not now:
        now.append(event)
        run_folders.sweep(Path(sys.argv[1]))
        swept.append(now.pop())

sys.addaudithook(another_run)
folder, _lock = run_folders.own_folder(Path(sys.argv[1]))
now.append("end")
assert {"tempfile.mkdtemp", "open", "fcntl.flock", "os.rename"} <= set(swept), swept
assert (folder / "lock").exists()
"""


def test_a_run_that_sweeps_while_another_makes_its_folder_leaves_it_alone(tmp_path: Path) -> None:
    done = forked.run_python("-c", SWEPT, str(tmp_path), cwd=ROOT, ahead=("hypothesis", "pytest"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_that_is_named_stays(tmp_path: Path) -> None:
    shown = Path(SHOWN.findall(run(tmp_path, f"--basetemp={tmp_path / 'mine'}"))[0])

    assert (shown / "kept").read_text(encoding="utf-8") == "x"
    assert shown.is_relative_to(tmp_path / "mine")


def test_cpu_is_shown_by_file_test_and_fixture(tmp_path: Path) -> None:
    output = run(tmp_path, "--cpu-table")

    assert re.search(r"^CPU: \d+\.\d s, of which collection \d+\.\d s$", output, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d\d  \S*test_probe\.py::test_folder$", output, re.MULTILINE)
    assert re.search(r"^ +\d+\.\d\d  ::tmp_path$", output, re.MULTILINE)


def test_a_failing_example_is_made_small_on_demand_only(tmp_path: Path) -> None:
    as_found = run(tmp_path, text=FALSE, code=1)
    small = run(tmp_path, "--hypothesis-profile=shrink", text=FALSE, code=1)

    assert "numbers=[1001]" in small
    assert "@reproduce_failure" in as_found
    assert "numbers=[1001]" not in as_found


NAMELESS = """
import pytest

@pytest.mark.parametrize("value", [object()], ids=repr)
def test_value(value):
    pass
"""


def test_a_name_that_differs_in_every_run_is_refused(tmp_path: Path) -> None:
    run(tmp_path, text=NAMELESS, code=pytest.ExitCode.USAGE_ERROR)


MANY = """
import os, signal
import pytest

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")

@pytest.mark.parametrize("number", range(20))
def test_it(number, shared, tmp_path):
    assert shared.is_dir() and tmp_path.is_dir()
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    assert number != 11, "eleven is odd"
"""


def test_workers_run_each_test_once_and_one_that_is_killed_fails_its_test_alone(tmp_path: Path) -> None:
    output = run(tmp_path, "--workers", "3", text=MANY, code=1)

    assert "the worker that ran this test ended by SIGKILL" in output
    assert "eleven is odd" in output
    failed = [line.partition(" - ")[0].rpartition("::")[2] for line in output.splitlines() if line.startswith("FAILED")]
    assert sorted(failed) == ["test_it[11]", "test_it[7]"]
    assert "= 2 failed, 18 passed in " in output


def test_workers_stop_where_one_failure_is_enough(tmp_path: Path) -> None:
    """Each of them, since none knows yet of what another has found."""
    output = run(
        tmp_path, "--workers", "2", "-x", text=MANY.replace("number !=", "0 >").replace("== 7", "== 70"), code=1
    )

    assert re.search(r"= [12] failed in ", output)
