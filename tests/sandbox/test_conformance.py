"""One suite of probes for every engine. What an engine does not give is written down here, and shown by `doctor`."""

import os
from collections.abc import Callable

import pytest

from tests.sandbox.conftest import ENGINES, needs, report
from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.examination import examine
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.execute.sandbox.probes import PROBES, PROTECTED
from toolwire.protocol.operations import Command

NOT_GIVEN = {
    "bubblewrap": set(),
    "podman": {"mounts"},
    "firejail": {"full_tmp", "many_names", "mounts"},
    "none": {
        "accounts", "datagram", "disks", "full_tmp", "host_file", "host_file_by_link", "host_name", "host_processes",
        "interfaces", "logs", "loopback", "many_names", "shared_memory", "shared_memory_hog", "shared_tmp", "sysfs",
        "daemons", "mounts",
    },
}  # fmt: skip
"""The most that an engine may lack; some of it depends on what the host has."""

NEEDS_ROOT = {
    "bubblewrap": {"many_names"},
    "podman": {"many_names"},
    "firejail": {probe.name for probe in PROTECTED},
    "none": {probe.name for probe in PROTECTED} | {"capabilities", "daemon", "stubborn_daemon", "shared_segments"},
}
"""What an engine gives only when root opens the box."""


def test_there_are_enough_probes_and_each_has_a_name_of_its_own() -> None:
    assert len({probe.name for probe in PROBES}) == len(PROBES) >= 60
    assert {probe.threat for probe in PROBES if probe.attack} >= {"T20", "T23", "T27", "T28", "T29", "T30", "T41"}


@pytest.mark.feature("F119")
@pytest.mark.parametrize("engine", ENGINES)
async def test_an_engine_gives_what_it_promises(boxed_by: Callable[[str], Sandbox], engine: str) -> None:
    sandbox = boxed_by(engine)
    if not report(engine).usable:
        with pytest.raises(SandboxUnavailable, match=engine):
            await sandbox.run(Command(("/bin/true",)))
        needs(engine)

    findings = [finding async for finding in examine(sandbox)]

    assert len(findings) == len(PROBES)
    lacking = {finding.probe.name: finding.said for finding in findings if not finding.given}
    accepted = NOT_GIVEN[engine] | (set() if os.geteuid() == 0 else NEEDS_ROOT[engine])
    assert {name: said for name, said in lacking.items() if name not in accepted} == {}


async def test_of_probes_that_share_a_box_those_that_get_through_are_named(boxed_by: Callable[[str], Sandbox]) -> None:
    shared = [probe for probe in PROBES if probe.name in ("host_file", "path", "host_processes", "planted_start_up")]
    assert all(probe.asks for probe in shared)

    findings = [finding async for finding in examine(boxed_by("none"), shared)]

    assert {finding.probe.name: finding.given for finding in findings} == {
        "host_file": False, "host_processes": False, "path": True, "planted_start_up": True,
    }  # fmt: skip
