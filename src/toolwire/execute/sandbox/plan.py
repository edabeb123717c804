"""What happens between the fork and the command: a list of steps for `enter.pl`, made before anything starts."""

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.starter import memory
from toolwire.execute.sandbox.syscalls import machine, number

PERL = "/usr/bin/perl"
SCRIPT = (Path(__file__).parent / "enter.pl").read_text(encoding="utf-8")

_NO_NEW_PRIVILEGES, _DEATH_SIGNAL, _SECCOMP, _DROP_CAPABILITY = 38, 1, 22, 24
_AMBIENT, _CLEAR_ALL, _CAPABILITY_VERSION = 47, 4, 0x20080522
_CLOSE_ON_EXEC = 4
LEAVING = {"CAP_SYS_CHROOT": 18, "CAP_SYS_ADMIN": 21, "CAP_SETPCAP": 8}
"""What it takes to leave a namespace, given up at once; the last is what it takes to give the others up."""

_LAST_FD = 2**31 - 1


class LaunchPlan:
    """Steps in the order of being added. Text with NUL is refused: C would silently stop reading there."""

    def __init__(self) -> None:
        self._fields: list[str] = []

    def call(self, name: str, *arguments: int | str | bytes) -> "LaunchPlan":
        """Make a system call."""
        which = number(name, machine())
        if which is None:
            raise SandboxUnavailable(f"{name} does not exist on {machine()} machines")
        return self._step("call", name, str(which), *map(_encoded, arguments))

    def write(self, path: str, text: str) -> "LaunchPlan":
        return self._step("write", path, text)

    def enter(self, folder: str) -> "LaunchPlan":
        return self._step("enter", folder)

    def set(self, variables: Mapping[str, str]) -> "LaunchPlan":
        """Give the command these variables and no others: here, and not in its words, where others could read them."""
        self._step("fresh")
        for name, value in variables.items():
            self._step("set", name, value)
        return self

    def limit(self, resource: int, most: int, *, grace: int = 0) -> "LaunchPlan":
        """Bound a process; one that goes beyond `most` and `grace` is killed without a signal that tells why."""
        return self.call("prlimit64", 0, resource, struct.pack("QQ", most, most + grace), 0)

    def user(self, uid: int, gid: int) -> "LaunchPlan":
        """Become an ordinary user for good."""
        return self.call("setgroups", 0, 0).call("setresgid", gid, gid, gid).call("setresuid", uid, uid, uid)

    def no_capabilities(self) -> "LaunchPlan":
        """Give up what root could hand on; only root can, and only root needs to."""
        for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
            self.call("prctl", _DROP_CAPABILITY, capability, 0, 0, 0)
        return self

    def leave_namespace(self) -> "LaunchPlan":
        """Stay where everything is mounted and belong to another mount namespace, so that `/proc` lists no mounts.

        What is listed is what can be reached in the process's own namespace; where its root is does not matter to it.
        The namespace that is left lives for as long as another process of the box is in it.
        """
        self._step("leave_namespace", str(number("unshare", machine())))
        for capability in LEAVING.values():
            self.call("prctl", _DROP_CAPABILITY, capability, 0, 0, 0)
        self.call("prctl", _AMBIENT, _CLEAR_ALL, 0, 0, 0)
        return self.call("capset", struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24))

    def return_to_namespace(self) -> "LaunchPlan":
        """Enter the process's own mount namespace once more: what lies at `/` then is what others find who enter it."""
        return self._step("return_to_namespace", str(number("setns", machine())))

    def no_new_privileges(self) -> "LaunchPlan":
        return self.call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)

    def die_with_parent(self) -> "LaunchPlan":
        return self.call("prctl", _DEATH_SIGNAL, 9, 0, 0, 0)

    def seccomp(self, program: bytes) -> "LaunchPlan":
        which = number("prctl", machine())
        return self._step("call", "seccomp", str(which), f"i{_SECCOMP}", "i2", f"f{program.hex()}")

    def landlock(self, attributes: bytes, rules: Iterable[tuple[int, str]]) -> "LaunchPlan":
        return self._step(
            "landlock", attributes.hex(), *(text for access, path in rules for text in (str(access), path))
        )

    def exec(self, argv: Iterable[str]) -> "LaunchPlan":
        """Become the command, with no descriptor but the standard three."""
        return self.call("close_range", 3, _LAST_FD, _CLOSE_ON_EXEC)._step("exec", *argv)

    def become(self, argv: Iterable[str]) -> "LaunchPlan":
        """Become a launcher, which needs the descriptors that were passed."""
        return self._step("exec", *argv)

    def wait(self) -> "LaunchPlan":
        """Stay until standard input ends."""
        return self._step("wait")

    def _step(self, *fields: str) -> "LaunchPlan":
        if "\0" in "".join(fields):
            raise SandboxUnavailable("a command, path or variable contains NUL")
        self._fields += (str(len(fields)), *fields)
        return self

    def memory(self) -> int:
        """A descriptor from which the steps can be read."""
        body = "\0".join((*self._fields, ""))
        return memory(body.encode("utf-8", "surrogateescape"), "plan")


def helper(plan: int, status: int) -> tuple[str, ...]:
    """The argv that carries out a plan."""
    return PERL, "-e", SCRIPT, str(plan), str(status)


def _encoded(argument: int | str | bytes) -> str:
    match argument:
        case int():
            return f"i{argument}"
        case str():
            return f"s{argument}"
        case bytes():
            return f"h{argument.hex()}"
