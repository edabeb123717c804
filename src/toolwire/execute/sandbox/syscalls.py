"""The numbers of system calls that Python has no name for, and how to make such a call."""

import ctypes
import os
import platform
from collections.abc import Mapping
from functools import cache
from typing import Any

_X86, _ARM = "x86_64", "aarch64"

# Calls newer than 2019 have the same number everywhere; of older ones: x86_64, aarch64 (None: it does not exist there).
_SAME = {
    "pidfd_getfd": 438, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435,
    "close_range": 436, "openat2": 437, "fchmodat2": 452,
    "mount_setattr": 442, "quotactl_fd": 443, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446, "open_tree_attr": 467,
}  # fmt: skip
_EACH: Mapping[str, tuple[int, int | None]] = {
    "chmod": (90, None), "creat": (85, None), "fchmod": (91, 52), "fchmodat": (268, 53), "mknod": (133, None),
    "mknodat": (259, 33), "open": (2, None), "openat": (257, 56),
    "capset": (126, 91),
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chroot": (161, 51),
    "clock_adjtime": (305, 266), "clock_settime": (227, 112), "clone": (56, 220), "create_module": (174, None),
    "dup3": (292, 24), "delete_module": (176, 106), "fanotify_init": (300, 262), "finit_module": (313, 273),
    "init_module": (175, 105), "ioctl": (16, 29), "ioperm": (173, None), "iopl": (172, None), "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "lookup_dcookie": (212, 18), "mbind": (237, 235),
    "migrate_pages": (256, 238), "mkdirat": (258, 34), "modify_ldt": (154, None), "mount": (165, 40),
    "move_pages": (279, 239), "name_to_handle_at": (303, 264), "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265), "perf_event_open": (298, 241), "personality": (135, 92),
    "pivot_root": (155, 41), "prctl": (157, 167), "prlimit64": (302, 261), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "ptrace": (101, 117), "quotactl": (179, 60), "reboot": (169, 142),
    "renameat2": (316, 276),
    "request_key": (249, 218), "setdomainname": (171, 162), "setgroups": (116, 159), "sethostname": (170, 161),
    "setns": (308, 268), "setresgid": (119, 149), "setresuid": (117, 147), "settimeofday": (164, 170),
    "shmctl": (31, 195), "shmget": (29, 194),
    "socket": (41, 198), "socketpair": (53, 199),
    "swapoff": (168, 225), "swapon": (167, 224), "syslog": (103, 116), "umount2": (166, 39),
    "unshare": (272, 97), "uselib": (134, None), "userfaultfd": (323, 282), "vhangup": (153, 58),
}  # fmt: skip


@cache
def machine() -> str:
    return platform.machine()


def known(architecture: str) -> bool:
    """Whether the numbers here hold on such a machine. On any other nothing can be confined."""
    return architecture in {_X86, _ARM}


def number(name: str, architecture: str) -> int | None:
    """The number of a call, None where it does not exist."""
    if name in _SAME:
        return _SAME[name]
    return _EACH[name][0 if architecture == _X86 else 1]


@cache
def _function() -> Any:
    """The C library's own function, found once: that takes as long as many calls."""
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.restype = ctypes.c_long
    return function


def call(name: str, *arguments: int | bytes) -> int:
    """Make a system call of this process. Raises OSError."""
    which = number(name, machine())
    if which is None:
        raise OSError(38, f"{name} does not exist on this machine")
    result = _function()(
        ctypes.c_long(which), *(one if isinstance(one, bytes) else ctypes.c_long(one) for one in arguments)
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return int(result)
