"""Containers: slower to start, with an own root filesystem; this machine's programs are lent to it, read-only."""

import fcntl
import os
import resource
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from toolwire.execute.sandbox import landlock, seccomp
from toolwire.execute.sandbox.cgroups import PREFIX, BoxGroup, own_name, owner_lives
from toolwire.execute.sandbox.contract import Box, EngineReport
from toolwire.execute.sandbox.inside import ENVIRONMENT, HOME, HOME_BYTES, NAMES, TOOLCHAIN, confine, profile, require
from toolwire.execute.sandbox.limits import SHOWN_PATHS, UNCOUNTED, no_core
from toolwire.execute.sandbox.plan import LaunchPlan, helper
from toolwire.execute.sandbox.protected import PROTECTED
from toolwire.execute.sandbox.starter import Descriptors
from toolwire.execute.sandbox.syscalls import machine
from toolwire.execute.sandbox.trial import examine_engine
from toolwire.execute.sandbox.workspace import (
    DOOR,
    STAGED_TMP,
    TMP,
    Workspace,
    lend_door,
    open_workspace,
    ready_stage,
    seal,
    stage,
)
from toolwire.protocol.operations import Command, ExecLimits

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FIRST_FREE = 100
_ITS_GROUP = "libpod-"
_INNER_PLAN, _INNER_STATUS = 3, 4
_FOLDERS = "usr proc sys dev tmp home/agent workspace run/toolwire var etc/alternatives etc/ssl/certs"
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_MADE_UP = {"etc/nsswitch.conf": NAMES, "etc/group": "nogroup:x:65534:\n"}
_FLAGS = (
    "--rm --interactive --network=none --read-only --cap-drop=all --security-opt=no-new-privileges --hostname=sandbox "
    "--no-hosts --log-driver=none --cgroupns=private --ipc=private --pid=private --uts=private --read-only-tmpfs=false "
    "--security-opt=mask=/sys/block:/sys/bus:/sys/class:/sys/dev:/sys/devices:/sys/firmware:/sys/fs:/sys/kernel:/sys/module:"
    "/sys/power"
)


class Podman:
    """A container without network, capability or writable root, with our own filter and landlock inside as well."""

    name = "podman"

    def __init__(self, *, program: str = "podman", runtime: str = "", rootfs: Path | None = None) -> None:
        self._program = shutil.which(program, path=_PATH) or ""
        # crun refuses machines where old and new cgroups are mixed; runc takes both.
        self._runtime = runtime or ("runc" if shutil.which("runc", path=_PATH) else "")
        self._rootfs = rootfs or _usual_place()
        self._landlock = landlock.abi()
        self.weaker: tuple[str, ...] = (SHOWN_PATHS, *(() if os.geteuid() == 0 else (UNCOUNTED,)))

    def probe(self) -> EngineReport:
        if self._program:
            self.sweep()
        return examine_engine(self, self._program, "podman is not installed (Debian: apt install podman runc)")

    def sweep(self) -> None:
        """Remove containers that an ended process has left behind."""
        listed = self._podman("ps", "--all", "--format", "{{.Names}}", "--filter", f"name=^{PREFIX}")
        left = [name for name in listed.split() if not owner_lives(name)]
        if left:
            self._podman("rm", "--force", "--time", "0", "--ignore", *left)

    def launch(self, command: Command) -> Box:
        require(self._program, self.name)
        _build(self._rootfs)
        with Descriptors() as held:
            workspace = open_workspace(command, held, PROTECTED)
            try:
                return self._start(command, workspace, held)
            except BaseException:
                workspace.close()
                raise

    def _start(self, command: Command, workspace: Workspace, held: Descriptors) -> Box:
        name = own_name()
        pidfile = Path(os.environ.get("XDG_RUNTIME_DIR", "/run"), f"{name}.pid")
        lend_door(command.door, workspace)
        streams = held.streams(command.stdin, workspace.user)
        inner = held.keep(_high(held.keep(self._inside(command).memory())))
        status = held.keep(_high(streams.to_status))
        words = ["run", "--name", name, f"--pidfile={pidfile}", *self._arguments(command, workspace)]
        words += [f"--preserve-fds={_INNER_STATUS - 2}", "--rootfs", str(self._rootfs)]
        words += helper(_INNER_PLAN, _INNER_STATUS)
        plan = self._outside(command.limits, workspace, inner, status, words)
        outside = held.keep(_high(held.keep(plan.memory())))
        box = Box.of(helper(outside, status), held.all, streams, self.name, self._profile(words))
        box.stages, box.weaker = 2, self.weaker
        box.stop = lambda: _kill_container(pidfile)
        box.workspace = workspace
        workspace.observe(lambda: _group_of(pidfile).activity())
        box.undo = [workspace.close, lambda: self._remove(name, pidfile)]
        return box

    def _outside(
        self, limits: ExecLimits, workspace: Workspace, inner: int, status: int, words: list[str]
    ) -> LaunchPlan:
        plan = LaunchPlan()
        if os.geteuid() == 0:
            ready_stage()
            seal(stage(plan, workspace, limits.tmp_bytes, limits.tmp_files), workspace)
        plan.call("dup3", inner, _INNER_PLAN, 0).call("dup3", status, _INNER_STATUS, 0)
        home = os.environ.get("HOME", "/root")
        runtime = ("--runtime", self._runtime) if self._runtime else ()
        surroundings = [f"HOME={home}", f"PATH={_PATH}"]
        if os.geteuid() != 0 and "XDG_RUNTIME_DIR" in os.environ:
            surroundings.append(f"XDG_RUNTIME_DIR={os.environ['XDG_RUNTIME_DIR']}")
        return plan.become(("/usr/bin/env", "-i", *surroundings, self._program, *runtime, *words))

    def _inside(self, command: Command) -> LaunchPlan:
        plan = LaunchPlan()
        if command.workspace:
            plan.enter(f"/workspace/{command.cwd}")
        confine(plan, command, self._landlock)
        plan.set({**ENVIRONMENT, **command.env})
        return plan.no_new_privileges().seccomp(seccomp.program(machine())).exec(command.argv)

    def _arguments(self, command: Command, workspace: Workspace) -> list[str]:
        limits = command.limits
        memory, processes = max(limits.memory_bytes, 1), max(limits.processes, 1)  # to podman, 0 means no limit
        words = [*_FLAGS.split(), f"--memory={memory}", f"--memory-swap={memory}"]
        words += [f"--pids-limit={processes}", f"--cpus={max(limits.cores, 0.01)}", f"--shm-size={HOME_BYTES}"]
        # Without CAP_SYS_RESOURCE podman's own idea of nproc is refused, so one within our limit is named.
        everyone = min(limit for limit in (resource.getrlimit(resource.RLIMIT_NPROC)[1], 4096) if limit >= 0)
        ulimits = (
            ("nofile", limits.open_files),
            ("fsize", limits.file_bytes),
            ("core", no_core()),
            ("nproc", everyone),
        )
        for name, most in ulimits:
            words += ["--ulimit", f"{name}={most}:{most}"]
        if limits.cpu_s:
            words += ["--ulimit", f"cpu={limits.cpu_s}:{limits.cpu_s + 1}"]
        words += ["--tmpfs", f"{HOME}:size={HOME_BYTES},mode=1777"]
        # Podman leaves a folder in the root for whatever was ever lent from root's home.
        words += ["--mount", "type=tmpfs,destination=/root,notmpcopyup,tmpfs-size=64k,tmpfs-mode=0711"]
        words += ["--user", f"{workspace.user}:{workspace.group}"]
        if os.geteuid() == 0:
            words += ["--volume", f"{STAGED_TMP}:{TMP}"]
        else:
            words += ["--userns=keep-id", "--tmpfs", f"{TMP}:size={limits.tmp_bytes},mode=1777"]
        words += ["--volume", f"{command.door}:{DOOR}"] if command.door else []
        for path in (*TOOLCHAIN, *command.readable):
            words += ["--volume", f"{path}:{path}:ro"] if Path(path).exists() else []
        return words + _mounts(command, workspace)

    def _profile(self, words: list[str]) -> str:
        fixed = [word for word in words if not word.startswith(("--pidfile", PREFIX)) and not word.endswith(f":{DOOR}")]
        return profile(*fixed)

    def _remove(self, name: str, pidfile: Path) -> None:
        """What podman keeps about a container that it could not remove itself, because it was killed."""
        pidfile.unlink(missing_ok=True)
        self._podman("rm", "--force", "--time", "0", "--ignore", name)

    def _podman(self, *words: str) -> str:
        surroundings = {"PATH": _PATH, "HOME": os.environ.get("HOME", "/root")}
        if "XDG_RUNTIME_DIR" in os.environ:
            surroundings["XDG_RUNTIME_DIR"] = os.environ["XDG_RUNTIME_DIR"]
        argv = [self._program, *words]
        return subprocess.run(argv, capture_output=True, text=True, env=surroundings, check=False).stdout  # noqa: S603 - our own words


def _mounts(command: Command, workspace: Workspace) -> list[str]:
    if workspace.guard is None:
        return []
    words = [
        "--volume",
        f"{workspace.source()}:/workspace:{'rw' if command.writable or workspace.scratch is not None else 'ro'}",
    ]
    if workspace.tree is not None:  # protected already, by root: what is mounted below it comes along
        return words
    for name in workspace.guard.kept:
        words += _bind(workspace.source(name), name, "rw")
    for name in workspace.guard.sealed:
        words += _bind(workspace.source(name), name, "ro")
    for name in workspace.guard.hidden:
        words += ["--mount", f"type=tmpfs,{_field('destination', name)},ro,notmpcopyup,tmpfs-size=4096"]
    for name in workspace.guard.unreadable:
        words += _bind(os.devnull, name, "ro")
    return words


def _bind(source: str, name: str, how: str) -> list[str]:
    return ["--mount", f'type=bind,"source={_quoted(source)}",{_field("destination", name)},{how}']


def _field(key: str, name: str) -> str:
    """A field with a path of the workspace, which may have commas in it."""
    return f'"{key}=/workspace/{_quoted(name)}"'


def _quoted(text: str) -> str:
    return text.replace('"', '""')


def _kill_container(pidfile: Path) -> bool:
    """Kill everyone in the container; False when it is not there.

    Killing its first process would do, but that waits for its turn among all the others before it takes them along.
    """
    with suppress(OSError, ValueError):
        first = int(pidfile.read_text())
        if not _is_contained(first):
            return False
        group = _group_of(pidfile)
        os.kill(first, signal.SIGKILL)
        group.kill()
        return True
    return False


def _group_of(pidfile: Path) -> BoxGroup:
    """The group that podman has made for a container; an empty one where there is none."""
    try:
        return BoxGroup.around(int(pidfile.read_text()), _ITS_GROUP)
    except (OSError, ValueError):
        return BoxGroup([])


def _is_contained(process: int) -> bool:
    """Whether a process is in a container. The file outlives its process, whose number may then be another's."""
    try:
        return Path(f"/proc/{process}/ns/pid").stat().st_ino != Path("/proc/self/ns/pid").stat().st_ino
    except PermissionError:
        return True  # nor could it be killed if it were not ours


def _high(descriptor: int) -> int:
    """The same file by a higher number, out of the way of those that podman wants to be low."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)


def _usual_place() -> Path:
    home = "/var/lib" if os.geteuid() == 0 else os.environ.get("XDG_DATA_HOME", str(Path.home() / ".local/share"))
    return Path(home, "toolwire", "rootfs")


def _build(rootfs: Path) -> None:
    """An empty system into which programs are mounted; no image has to be fetched for it."""
    if (rootfs / DOOR[1:]).exists():
        return
    for folder in _FOLDERS.split():
        (rootfs / folder).mkdir(parents=True, exist_ok=True)
    (rootfs / "home/agent").chmod(0o777)  # a mount over it takes its mode
    for file, text in _MADE_UP.items():
        (rootfs / file).write_text(text)
    for name, target in _LINKS.items():
        if not (rootfs / name).is_symlink():
            (rootfs / name).symlink_to(target)
    (rootfs / DOOR[1:]).touch()
