"""Which projects a process serves."""

from pathlib import Path

import pytest

from toolwire.assemble.project import open_project
from toolwire.assemble.served_projects import ServedProjects
from toolwire.errors import SettingsError


@pytest.mark.parametrize("name", ["..", "a/b", "a b", "*", "", "ä", "a.b", "\0", "x" * 65])
def test_a_project_whose_name_no_subject_can_hold_is_refused_and_gets_no_folder(tmp_path: Path, name: str) -> None:
    served = ServedProjects(open_project({}, name="default", cwd=tmp_path, environ={}))

    with pytest.raises(SettingsError, match="cannot be served by a fleet"):
        served.open(name)
    assert list(tmp_path.iterdir()) == []
