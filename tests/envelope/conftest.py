from pathlib import Path

import pytest

from tests.envelope.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    folder, home = tmp_path / "project", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    return Stage(folder, home)
