"""Stages for commands: real processes, or this process where speed matters."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.painter import GRANTED, TOOLS
from tests.cli.stage import Ran, Stage
from toolwire.cli import program

Inside = Callable[..., Ran]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Inside:
    """Run a command in this process, in a trusted folder of its own and with an environment that says nothing else."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TOOLWIRE_") or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TOOLWIRE_TRUST", str(tmp_path))

    def run(*words: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            program()(list(words), prog_name="toolwire")
        seen = capfdbinary.readouterr()
        return Ran(int(ended.value.code or 0), seen.out.decode(), seen.err.decode())

    return run


@pytest.fixture
def painter(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """Commands in a project with a tool that needs approval; see `tests.cli.painter`."""
    (tmp_path / "brushwork.py").write_text(TOOLS, encoding="utf-8")
    (tmp_path / "toolwire.toml").write_text(GRANTED, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return inside
