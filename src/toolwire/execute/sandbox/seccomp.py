"""The system calls that no command needs and attacks do: a filter in the kernel's own language.

A command that makes a denied call is told EPERM and goes on; one that speaks another architecture's numbers is killed.
"""

import errno
import struct
from functools import cache

from toolwire.errors import SandboxUnavailable
from toolwire.execute.sandbox.syscalls import known, number

DENIED = (
    "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp io_uring_setup io_uring_enter io_uring_register bpf "
    "perf_event_open userfaultfd fanotify_init keyctl add_key request_key mount umount2 pivot_root chroot unshare "
    "setns open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr open_by_handle_at "
    "name_to_handle_at create_module init_module finit_module delete_module kexec_load kexec_file_load swapon swapoff "
    "reboot acct quotactl quotactl_fd nfsservctl syslog clock_settime settimeofday adjtimex clock_adjtime iopl ioperm "
    "modify_ldt vhangup uselib lookup_dcookie mbind move_pages migrate_pages sethostname setdomainname"
).split()

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000
# Typing into a terminal, its selection buffer, and other line disciplines, for which the kernel loads modules.
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_UNIX, _INET, _INET6 = 1, 2, 10
_SET_ID = 0o6000
_CREATING = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE; without one of them the mode is whatever lay in the register
_MODE_OF = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
_FLAGS_OF = {"open": 1, "openat": 2}

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in seccomp_data; low halves of the arguments
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


@cache
def program(architecture: str) -> bytes:
    """The filter for a machine. Raises SandboxUnavailable for one whose numbers are unknown."""
    if not known(architecture):
        raise SandboxUnavailable(f"no system call filter is known for {architecture} machines")
    lines = [
        _op(_LOAD, _ARCHITECTURE),
        _op(_EQUAL, _AUDIT[architecture], 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
    ]
    if architecture == "x86_64":
        lines += [_op(_AT_LEAST, _X32, 0, 1), _op(_RETURN, _KILL)]
    for name in DENIED:
        if (which := number(name, architecture)) is not None:
            lines += [_op(_EQUAL, which, 0, 1), _refuse(errno.EPERM)]
    return b"".join([*lines, *_set_id(architecture), *_by_argument(architecture), _op(_RETURN, _ALLOW)])


def _set_id(architecture: str) -> list[bytes]:
    """Refuse files that run as their owner: what a box makes in root's workspace belongs to root on the disk."""
    lines: list[bytes] = []
    for name, position in _MODE_OF.items():
        if (which := number(name, architecture)) is not None:
            lines += [_op(_EQUAL, which, 0, 4), _op(_LOAD, _FIRST + 8 * position), _op(_ANY_BIT, _SET_ID, 0, 1)]
            lines += [_refuse(errno.EPERM), _op(_RETURN, _ALLOW)]
    for name, position in _FLAGS_OF.items():
        if (which := number(name, architecture)) is not None:
            lines += [_op(_EQUAL, which, 0, 6), _op(_LOAD, _FIRST + 8 * position), _op(_ANY_BIT, _CREATING, 0, 3)]
            lines += [_op(_LOAD, _FIRST + 8 * position + 8), _op(_ANY_BIT, _SET_ID, 0, 1)]
            lines += [_refuse(errno.EPERM), _op(_RETURN, _ALLOW)]
    # Its mode lies in memory that a filter cannot read; programs that use it know kernels without it.
    return [*lines, _op(_EQUAL, number("openat2", architecture) or 0, 0, 1), _refuse(errno.ENOSYS)]


def _by_argument(architecture: str) -> list[bytes]:
    """Calls that are refused for some arguments. Each block ends in an answer, so their order does not matter."""
    allow = _op(_RETURN, _ALLOW)
    clone3, clone, ioctl, socket, socketpair, personality = (
        _op(_EQUAL, number(name, architecture) or 0, 0, skipped)
        for name, skipped in (
            ("clone3", 1), ("clone", 4), ("ioctl", 6), ("socket", 6), ("socketpair", 4), ("personality", 4)
        )
    )  # fmt: skip
    return [
        # Its flags lie in memory that a filter cannot read; libc falls back to clone.
        *(clone3, _refuse(errno.ENOSYS)),
        *(clone, _op(_LOAD, _FIRST), _op(_ANY_BIT, _NEW_NAMESPACES, 0, 1), _refuse(errno.EPERM), allow),
        *(ioctl, _op(_LOAD, _SECOND), _op(_EQUAL, _TIOCSTI, 2, 0), _op(_EQUAL, _TIOCSETD, 1, 0)),
        *(_op(_EQUAL, _TIOCLINUX, 0, 1), _refuse(errno.EPERM), allow),
        *(socket, _op(_LOAD, _FIRST), _op(_EQUAL, _UNIX, 3, 0), _op(_EQUAL, _INET, 2, 0), _op(_EQUAL, _INET6, 1, 0)),
        *(_refuse(errno.EAFNOSUPPORT), allow),
        *(socketpair, _op(_LOAD, _FIRST), _op(_EQUAL, _UNIX, 1, 0), _refuse(errno.EAFNOSUPPORT), allow),
        *(personality, _op(_LOAD, _FIRST), _op(_EQUAL, 0, 1, 0), _refuse(errno.EPERM), allow),
    ]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(code: int) -> bytes:
    return _op(_RETURN, _ERRNO | code)
