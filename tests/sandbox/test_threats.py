"""Attacks on the box, each with its control: the same attack where the defence is off gets through.

A test carries the number of its row in the threat model. What engines other than bubblewrap do not give is in
`test_conformance.py`.
"""

import asyncio
import fcntl
import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import forked
from tests.sandbox.conftest import Open, facts, git, names
from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.bubblewrap import Bubblewrap
from toolwire.execute.sandbox.cgroups import Cgroups
from toolwire.execute.sandbox.engines import cgroups, local_sandbox
from toolwire.execute.sandbox.examination import ProbedHost
from toolwire.execute.sandbox.limits import UNCOUNTED
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.execute.sandbox.probes import Probe, by_threat, probe_named
from toolwire.execute.sandbox.protected import PROTECTED, guard
from toolwire.protocol.operations import MIB, Command, ExecLimits, ExecOps, shell

AS_ROOT = os.geteuid() == 0
BWRAP = shutil.which("bwrap") or "bwrap"


@pytest.fixture(scope="module")
def host() -> Iterator[ProbedHost]:
    with ProbedHost() as opened:
        yield opened


async def holds(ops: ExecOps, probe: Probe, host: ProbedHost) -> bool:
    return (await host.ask(ops, probe)).given


def _each(*threats: str) -> list[str]:
    return [probe.name for threat in threats for probe in by_threat(threat)]


@pytest.mark.parametrize("name", _each("T20", "T21", "T22"))
async def test_T20_T21_T22_no_path_leads_out_of_the_workspace(box: Sandbox, host: ProbedHost, name: str) -> None:
    assert await holds(box, probe_named(name), host)


@pytest.mark.parametrize("name", ["host_file", "host_file_by_link", "host_file_by_hard_link", "host_write"])
async def test_T20_control_without_a_box_these_paths_lead_out(host: ProbedHost, name: str) -> None:
    assert not await holds(Open(), probe_named(name), host)


@pytest.mark.parametrize("name", _each("T23"))
async def test_T23_names_that_something_later_obeys_cannot_be_written(
    box: Sandbox, host: ProbedHost, name: str
) -> None:
    assert await holds(box, probe_named(name), host)


@pytest.mark.parametrize("name", _each("T23"))
async def test_T23_control_they_can_be_where_nothing_is_protected(host: ProbedHost, name: str) -> None:
    unprotected = Sandbox({"bubblewrap": Bubblewrap(cgroups(), protected=())})

    assert not await holds(unprotected, probe_named(name), host)


async def test_T23_stand_ins_for_missing_names_go_with_the_last_box(box: Sandbox, workspace: Path) -> None:
    """While one box is open, the end of another must not uncover what both protect."""
    text = "echo open; until test -e go; do sleep 0.01; done; mkdir -p .toolwire/x || echo refused"
    opened = asyncio.Event()
    async with asyncio.timeout(20):
        running = asyncio.create_task(box.run(Command(shell(text), str(workspace)), lambda *_: opened.set()))
        await opened.wait()
        await box.run(Command(("/bin/true",), str(workspace)))
        (workspace / "go").touch()
        ran = await running

    assert ran.stdout.text == "open\nrefused\n"
    assert names(workspace) == ["go"]


def test_T23_a_stand_in_left_by_a_killed_process_is_taken_away_by_the_next(workspace: Path) -> None:
    script = f"from toolwire.execute.sandbox.protected import guard; guard({str(workspace)!r}); import os; os._exit(1)"
    forked.run_python("-c", script)
    assert ".toolwire" in names(workspace)

    guard(str(workspace)).close()

    assert names(workspace) == []


def test_T23_a_link_in_place_of_a_protected_name_is_refused(workspace: Path) -> None:
    (workspace / ".git").symlink_to("/etc")

    with pytest.raises(SandboxUnavailable, match=r"'\.git' is a link"):
        guard(str(workspace), PROTECTED)


HOOKS = ("hooks", "tools/hooks", "./hooks/", "{workspace}/hooks")


@pytest.mark.parametrize("written", HOOKS)
async def test_T23_hooks_that_lie_elsewhere_in_the_workspace_cannot_be_changed_or_made(
    box: Sandbox, workspace: Path, written: str
) -> None:
    git("init", "-q", str(workspace))
    git("-C", str(workspace), "config", "core.hooksPath", written.format(workspace=workspace))
    git("-C", str(workspace), "config", "include.path", "../shared.gitconfig")
    (workspace / "shared.gitconfig").write_text("[user]\n")
    (workspace / "tools").mkdir()
    text = "for d in hooks tools/hooks; do mkdir -p $d; echo x > $d/pre-commit; done; echo x >> shared.gitconfig"

    await box.run(Command(shell(text), str(workspace)))

    hooks = (workspace / written.format(workspace=workspace)).resolve()
    assert not (hooks / "pre-commit").exists()
    assert (workspace / "shared.gitconfig").read_text() == "[user]\n"
    other = workspace / ("tools/hooks" if hooks.parent == workspace else "hooks")
    assert (other / "pre-commit").exists(), "the control: where git looks for no hooks, anything can be written"


async def test_T23_a_lock_that_is_never_released_does_not_hold_boxes_up_for_ever(box: Sandbox, workspace: Path) -> None:
    held = os.open(workspace, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        async with asyncio.timeout(20):
            with pytest.raises(SandboxUnavailable, match="has locked the workspace"):
                await box.run(Command(("/bin/true",), str(workspace)))
    finally:
        os.close(held)
    assert (await box.run(Command(("/bin/true",), str(workspace)))).exit_code == 0


@pytest.mark.parametrize("name", _each("T27"))
async def test_T27_nothing_of_the_launcher_can_be_seen(box: Sandbox, host: ProbedHost, name: str) -> None:
    assert await holds(box, probe_named(name), host)


def test_T27_control_a_launcher_with_an_environment_shows_it(workspace: Path) -> None:
    """`--clearenv` clears the command's environment, not the launcher's."""
    words = "--unshare-all --clearenv --ro-bind / / --proc /proc --dev /dev -- /bin/grep -az CANARY /proc/1/environ"

    told = subprocess.run([BWRAP, *words.split()], env={"CANARY": "seen"}, capture_output=True, check=False)

    assert b"seen" in told.stdout


@pytest.mark.parametrize("name", _each("T28"))
async def test_T28_nothing_of_root_or_the_kernel_can_be_reached(box: Sandbox, host: ProbedHost, name: str) -> None:
    assert await holds(box, probe_named(name), host)


async def test_T28_control_without_a_box_root_and_kernel_are_in_reach(host: ProbedHost) -> None:
    """Only harmless ones: these are tried for real."""
    reached = ["no_filter", "new_privileges", "syscall_ptrace", "sysfs", "syscall_clone3"]
    reached += ["line_discipline", *(["old_numbers"] if platform.machine() == "x86_64" else [])]
    reached += ["set_id_file", "set_id_made", "own_record"]
    if AS_ROOT:
        reached += ["root_inside", "become_root", "capabilities", "user_namespace", "host_signal", "passwords"]

    assert [name for name in reached if await holds(Open(), probe_named(name), host)] == []


def test_T28_control_a_box_started_by_root_can_write_kernel_settings() -> None:
    """Why the user is dropped first: bubblewrap itself does not protect root from root."""
    if not AS_ROOT:
        pytest.skip("only root can show this")
    flags = "--unshare-all --cap-drop ALL --ro-bind / / --dev /dev --proc /proc --"
    words = ["/bin/sh", "-c", "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo WRITTEN"]

    told = subprocess.run([BWRAP, *flags.split(), *words], env={}, capture_output=True, check=False)

    assert b"WRITTEN" in told.stdout


@pytest.mark.parametrize("name", _each("T29"))
async def test_T29_no_resource_can_be_exhausted(box: Sandbox, host: ProbedHost, name: str) -> None:
    if name == "many_names" and not AS_ROOT:
        assert UNCOUNTED in (await box.report("bubblewrap")).weaker
        pytest.skip("names are counted only where root opens the box")
    assert await holds(box, probe_named(name), host)


@pytest.mark.parametrize("name", ["many_processes", "long_file", "many_files", "full_tmp", "many_names"])
async def test_T29_control_with_large_limits_the_same_goes_through(box: Sandbox, host: ProbedHost, name: str) -> None:
    probe = probe_named(name)
    wide = Probe(probe.name, probe.tries, probe.script, limits=ExecLimits(10, memory_bytes=1024 * MIB))

    assert not await holds(box, wide, host)


async def test_T29_the_next_call_works_after_each_kind_of_bomb(box: Sandbox, workspace: Path) -> None:
    bombs = (
        ":(){ :|:& };: ; sleep 0.5",
        "perl -e '$x .= \"a\" x 50_000_000 while 1'",
        "yes > /tmp/full; cat /dev/zero > /dev/shm/full",
        "mkdir /tmp/m; cd /tmp/m; for i in {1..3000}; do mkdir d && cd d || break; done",
    )
    small = ExecLimits(8, memory_bytes=128 * MIB, processes=40, tmp_bytes=8 * MIB, tmp_files=500)

    for bomb in bombs:
        await box.run(Command(shell(bomb), str(workspace), limits=small))
        assert (await box.run(Command(("/bin/echo", "well"), str(workspace)))).stdout.text == "well\n"
    assert box.healthy


@pytest.mark.parametrize("name", _each("T30"))
async def test_T30_no_daemon_survives_its_call(box: Sandbox, host: ProbedHost, name: str) -> None:
    assert await holds(box, probe_named(name), host)


@pytest.mark.parametrize("name", _each("T30"))
async def test_T30_control_without_a_box_it_does(host: ProbedHost, name: str) -> None:
    assert not await holds(Open(), probe_named(name), host)


@pytest.mark.parametrize("name", _each("T30"))
async def test_T30_no_daemon_survives_without_namespaces_either(
    boxed_by: Callable[[str], Sandbox], host: ProbedHost, name: str
) -> None:
    """The engine `none` has only the control group for this; without one it says so."""
    given = await holds(boxed_by("none"), probe_named(name), host)

    assert given == bool(cgroups().holds)


@pytest.mark.parametrize("name", _each("T32"))
async def test_T32_nothing_can_be_typed_into_the_operators_terminal(box: Sandbox, host: ProbedHost, name: str) -> None:
    assert await holds(box, probe_named(name), host)


async def test_T32_control_without_a_filter_the_call_reaches_the_terminal(host: ProbedHost) -> None:
    """There is no terminal here, and the kernel says so; with a filter it is never asked."""
    assert not await holds(Open(), probe_named("tiocsti"), host)


@pytest.mark.parametrize("name", _each("T41"))
async def test_T41_there_is_no_network(box: Sandbox, host: ProbedHost, name: str) -> None:
    assert await holds(box, probe_named(name), host)


@pytest.mark.parametrize("name", ["host_port", "datagram", "abstract_socket", "interfaces", "socket_netlink"])
async def test_T41_control_without_a_box_there_is(host: ProbedHost, name: str) -> None:
    assert not await holds(Open(), probe_named(name), host)


@pytest.mark.parametrize("name", _each("T72"))
async def test_T72_nothing_is_shared_with_the_host_or_another_call(box: Sandbox, host: ProbedHost, name: str) -> None:
    assert await holds(box, probe_named(name), host)


@pytest.mark.parametrize("name", ["shared_tmp", "shared_memory", "shared_segments", "host_name"])
async def test_T72_control_without_a_box_it_is(host: ProbedHost, name: str) -> None:
    assert not await holds(Open(), probe_named(name), host)


async def test_T72_what_one_call_leaves_in_tmp_the_next_does_not_find(box: Sandbox, workspace: Path) -> None:
    await box.run(
        Command(shell("echo secret > /tmp/left; echo secret > ~/left; echo secret > /dev/shm/left"), str(workspace))
    )

    found = await box.run(Command(shell("ls -A /tmp ~ /dev/shm | grep left"), str(workspace)))

    assert found.stdout.text == ""


async def test_T73_planted_start_up_files_and_variables_are_not_obeyed(box: Sandbox, workspace: Path) -> None:
    for name in (".bashrc", ".profile", ".bash_profile", "sitecustomize.py", "ls"):
        (workspace / name).write_text("echo OBEYED\n")
        (workspace / name).chmod(0o755)

    ran = await box.run(Command(shell("ls >/dev/null; bash -lc true; echo $BASH_ENV $LD_PRELOAD"), str(workspace)))

    assert "OBEYED" not in ran.stdout.text


async def test_T73_control_with_the_variable_set_the_planted_file_is_obeyed(box: Sandbox, workspace: Path) -> None:
    (workspace / "planted").write_text("echo OBEYED\n")

    ran = await box.run(Command(shell("true"), str(workspace), env={"BASH_ENV": "/workspace/planted"}))

    assert "OBEYED" in ran.stdout.text


def _left_behind() -> int:
    """A process in a group whose maker is gone."""
    script = (
        "import os, subprocess; from toolwire.execute.sandbox.cgroups import Cgroups\n"
        "from toolwire.protocol.operations import ExecLimits\n"
        "group = Cgroups.here().make(ExecLimits())\n"
        "child = subprocess.Popen(['/bin/sleep', '300'], start_new_session=True, stdout=-3, stderr=-3)\n"
        "[open(door, 'w').write(str(child.pid)) for door in group.doors]\n"
        "print(child.pid, flush=True); os._exit(1)"
    )
    return int(subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).stdout)


def test_T30_what_a_killed_process_left_running_is_swept_by_the_next(workspace: Path) -> None:
    """Its groups carry its number and the moment it began, since numbers are used again."""
    found = Cgroups.here()
    if not found.holds:
        pytest.skip("there are no cgroups to leave behind on this machine")
    left = _left_behind()
    assert facts(Path(f"/proc/{left}"))

    assert found.sweep() > 0

    state = Path(f"/proc/{left}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_T30_what_a_killed_process_left_running_is_swept_by_one_that_lives_on(workspace: Path) -> None:
    """A long-lived process sweeps again whenever it makes a group and enough time has passed."""
    found = Cgroups.here(sweep_s=0.0)
    if not found.holds:
        pytest.skip("there are no cgroups to leave behind on this machine")
    left = _left_behind()

    found.make(ExecLimits()).remove()
    for thread in threading.enumerate():
        if thread.name == "toolwire-cgroup-sweep":
            thread.join(10)

    state = Path(f"/proc/{left}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_box_without_cgroups_says_what_is_weaker() -> None:
    weaker = Bubblewrap(Cgroups([])).probe().weaker

    assert any("memory is limited for each process" in sentence for sentence in weaker)
    assert any("cgroup.kill" in sentence for sentence in weaker)


async def test_a_box_without_cgroups_still_holds_every_limit_of_a_process(host: ProbedHost) -> None:
    bare = Sandbox({"bubblewrap": Bubblewrap(Cgroups([]))})

    for name in ("many_processes", "much_memory", "long_file", "many_files", "daemon", "stubborn_daemon", "spin"):
        assert await holds(bare, probe_named(name), host), name


def test_local_sandbox_is_bubblewrap_unless_an_operator_says_otherwise() -> None:
    assert local_sandbox().choice() == "bubblewrap"
    assert local_sandbox(floor="none", default="none").choice() == "none"


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr", "/tmp/../etc"])
async def test_T20_a_folder_of_the_system_is_never_a_workspace(box: Sandbox, folder: str) -> None:
    with pytest.raises(SandboxUnavailable, match="cannot be a workspace"):
        await box.run(Command(("/bin/true",), folder))


async def test_T23_secrets_and_start_up_files_of_a_home_are_out_of_reach(box: Sandbox, workspace: Path) -> None:
    (workspace / ".ssh").mkdir()
    (workspace / ".ssh" / "id_ed25519").write_text("secret\n")
    (workspace / ".bashrc").write_text("ours\n")
    text = "cat .ssh/id_ed25519; echo x > .ssh/authorized_keys; echo x >> .bashrc; mv .ssh old; rm -rf .ssh .bashrc"

    ran = await box.run(Command(shell(text), str(workspace)))

    assert ran.stdout.text == ""
    assert names(workspace / ".ssh") == ["id_ed25519"]
    assert (workspace / ".bashrc").read_text() == "ours\n"
