"""The system call filter, followed instruction by instruction, for both kinds of machine."""

import errno
import struct

import pytest

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.seccomp import DENIED, program
from toolwire.execute.sandbox.syscalls import number

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def verdict(architecture: str, which: int, *arguments: int, audit: int | None = None) -> int:
    """What the kernel would answer to a call."""
    speaks = ARCHITECTURES[architecture] if audit is None else audit
    values = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", which, speaks, 0, *values)
    lines = list(struct.iter_unpack("=HBBI", program(architecture)))
    at, held = 0, 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        match code:
            case 0x20:
                [held] = struct.unpack_from("=I", data, value)
            case 0x15:
                at += if_true if held == value else if_false
            case 0x35:
                at += if_true if held >= value else if_false
            case 0x45:
                at += if_true if held & value else if_false
            case 0x06:
                return int(value)


def of(name: str, architecture: str) -> int:
    which = number(name, architecture)
    assert which is not None
    return which


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_denied_call_is_refused_and_ordinary_ones_pass(architecture: str) -> None:
    for name in DENIED:
        if (which := number(name, architecture)) is not None:
            assert verdict(architecture, which) == ERRNO | errno.EPERM, name
    for name in ("setresuid", "prlimit64", "close_range", "landlock_create_ruleset", "dup3", "mkdirat", "setgroups"):
        assert verdict(architecture, of(name, architecture)) == ALLOW


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_some_calls_are_refused_for_some_arguments_only(architecture: str) -> None:
    def ask(name: str, *arguments: int) -> int:
        return verdict(architecture, of(name, architecture), *arguments)

    assert ask("clone", 0x01200011) == ALLOW
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask("clone", flag | 17) == ERRNO | errno.EPERM
    assert ask("clone3") == ERRNO | errno.ENOSYS
    assert [ask("socket", family) for family in (1, 2, 10)] == [ALLOW] * 3
    assert {ask("socket", family) for family in (0, 3, 16, 17, 31, 38, 40, 44)} == {ERRNO | errno.EAFNOSUPPORT}
    assert (ask("socketpair", 1), ask("socketpair", 30)) == (ALLOW, ERRNO | errno.EAFNOSUPPORT)
    assert ask("ioctl", 0, 0x5401) == ALLOW
    assert [ask("ioctl", 0, what) for what in (0x5412, 0x541C, 0x5423)] == [ERRNO | errno.EPERM] * 3
    assert ask("ioctl", 0, 0xFFFFFFFF_00005412) == ERRNO | errno.EPERM  # the kernel looks at the low half only
    assert (ask("personality", 0), ask("personality", 0x0040000)) == (ALLOW, ERRNO | errno.EPERM)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_file_can_be_made_to_run_as_its_owner(architecture: str) -> None:
    def ask(name: str, *arguments: int) -> int:
        which = number(name, architecture)
        return ERRNO | errno.EPERM if which is None else verdict(architecture, which, *arguments)

    create = 0o101
    for bits in (0o4755, 0o2755, 0o6000):
        answers = [
            ask("chmod", 0, bits), ask("fchmod", 0, bits), ask("fchmodat", 0, 0, bits), ask("fchmodat2", 0, 0, bits),
            ask("creat", 0, bits), ask("mknod", 0, bits), ask("mknodat", 0, 0, bits), ask("open", 0, create, bits),
            ask("openat", 0, 0, create, bits), ask("openat", 0, 0, 0o20200002, bits),
        ]  # fmt: skip
        assert set(answers) == {ERRNO | errno.EPERM}
    assert ask("fchmodat", 0, 0, 0o755) == ask("openat", 0, 0, create, 0o644) == ALLOW
    assert ask("openat", 0, 0, 0, 0o4755) == ALLOW  # nothing is made, so the mode means nothing
    assert ask("openat2") == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_calls_of_another_architecture_kill(architecture: str) -> None:
    assert verdict(architecture, 39, audit=0x40000003) == KILL
    if architecture == "x86_64":
        assert verdict(architecture, 0x40000000 + 39) == KILL


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        program("riscv64")
