"""What a command writes without end costs the process that runs it next to nothing, all the way to its result."""

import os
import subprocess
import sys
from contextlib import closing

import pytest

from .stage import LIMIT_S, Stage

SETTINGS = '[tools]\ngroups = ["shell"]\n[grant]\ntier = "run"\npermissions = ["shell"]\nroots = ["work"]\n'
MIB = 1024 * 1024
LONG = 300 * MIB
COMMANDS = {
    "zeros": f"head -c {LONG} /dev/zero",
    "short lines": f"yes hello | head -c {LONG}",
    "on both streams": f"head -c {LONG} /dev/zero | tee /dev/stderr",
}


def grown(stage: Stage, command: str) -> int:
    """The most memory that a call took, in KiB."""
    process = stage.start("call", "bash", f"command={command}", "--yes", "--json", anew=True)
    assert process.stdout is not None
    told = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert (process.returncode, b'"status"' in told) == (0, True)
    return used.ru_maxrss


def prepared(stage: Stage) -> Stage:
    (stage.folder / "work").mkdir()
    stage.settings(SETTINGS)
    return stage


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> int:
    """What a call takes whose command writes nothing."""
    with closing(prepared(Stage(tmp_path_factory.mktemp("usual")))) as stage:
        return grown(stage, "true")


@pytest.mark.parametrize("kind", COMMANDS)
def test_T29_a_call_with_endless_output_costs_at_most_32_mib(stage: Stage, usual: int, kind: str) -> None:
    after = grown(prepared(stage), COMMANDS[kind])

    assert (after - usual) // 1024 <= 32


def test_T29_control_keeping_all_of_it_would_cost_more() -> None:
    script = (
        f"import subprocess; subprocess.run(['head', '-c', '{LONG}', '/dev/zero'], capture_output=True, check=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)

    assert process.wait(LIMIT_S) == 0
    assert used.ru_maxrss > 200 * 1024
