"""Paths that try to lead out of a workspace, or to hide where they lead."""

from itertools import product

UPWARD = (
    "..", "../", "../..", "./..", "a/..", "a/../..", "a/./..//..", ".//..", "..//", "....//..", "a/b/../../..",
    "folder/../..", "/..", "/../", "//..", "./a/../../", ".../..", "a//..//..", "in/../../workspace/..", ".. ", "..\t",
    "..\u200b/..", "\u2025", "\uff0e\uff0e", "..%00", "..;", "..\\..", "..\\", "%2e%2e", "%2e%2e%2f..", "%252e%252e",
    "..%2f..", "..%5c..", "..%c0%af..", "\u2024\u2024/..", ".\u0323./..", "~", "~root", "$HOME", "${HOME}", "$(pwd)/..",
)  # fmt: skip
TARGETS = ("secret.txt", "/secret.txt", "/workspace-twin/secret.txt", "/etc/passwd")
ABSOLUTE = (
    "/etc/passwd", "//etc/passwd", "///etc/passwd", "/./etc/passwd", "/etc/../etc/passwd", "/proc/self/environ",
    "/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/1/environ", "/proc/self/fd/0", "/dev/zero", "/dev/stdin",
    "/dev/fd/0", "/sys/kernel", "/srv/me/.ssh/id_rsa", "file:///etc/passwd", "file:/etc/passwd", "C:\\Windows\\win.ini",
    "\\\\server\\share", "c:/windows/win.ini", "/\x00etc/passwd", "{outside}/secret.txt",
    "{outside}/workspace/../secret.txt",
    "{outside}/workspace-twin/secret.txt", "{outside}/workspace/../workspace-twin/secret.txt", "{outside}//secret.txt",
    "{outside}/./secret.txt", "{outside}/workspace/./../secret.txt", "{outside}", "{outside}/",
)  # fmt: skip
LINKS = (
    "link", "absolute", "folder-link/secret.txt", "chain/secret.txt", "magic/etc/passwd", "magic{outside}/secret.txt",
    "loop", "loop/x", "up/secret.txt", "up/workspace-twin/secret.txt", "in/up/secret.txt", "cwd/secret.txt",
    "./link", "in/../link", "link/", "link/.", "chain/./secret.txt", "up/../secret.txt", "fd/0", "dangling",
)  # fmt: skip
CONTROLS = tuple(
    template.format(char)
    for char in ("\0", "\n", "\r", "\x1b", "\x07", "\x08", "\x7f", "\x85", "\x9b", "\ud800")
    for template in ("a.txt{}", "{}../secret.txt", "a{}/../../secret.txt", "a.txt{}../../secret.txt")
)
LONG = (
    "x" * 4000,
    "d/" * 2000,
    "../" * 1000 + "etc/passwd",
    "a/" * 60 + "../" * 61 + "secret.txt",
    "./" * 2000 + "../secret.txt",
)

PATHS = tuple(
    dict.fromkeys(
        [
            *(f"{up.rstrip('/')}/{target.lstrip('/')}" for up, target in product(UPWARD, TARGETS)),
            *UPWARD,
            *ABSOLUTE,
            *LINKS,
            *CONTROLS,
            *LONG,
        ]
    )
)
