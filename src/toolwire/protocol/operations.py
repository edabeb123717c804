"""What tools do to the world, as contracts: the same tool runs on this machine, in a box, far away or in a test."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct
from msgspec import field as struct_field

from toolwire.protocol.traffic import Traffic

MIB = 1024 * 1024


class ExecLimits(Struct, frozen=True):
    """What one command may use. `tmp_files` counts names in /tmp; `output_bytes` are kept of each stream."""

    wall_s: float = 30.0
    cpu_s: int = 0
    cores: float = 1.0
    memory_bytes: int = 512 * MIB
    processes: int = 128
    open_files: int = 256
    file_bytes: int = 1024 * MIB
    tmp_bytes: int = 256 * MIB
    tmp_files: int = 50_000
    output_bytes: int = 10 * MIB


LIMITS: Mapping[str, ExecLimits] = {
    "file": ExecLimits(5, 5, 1, 256 * MIB, 8, 64, 100 * MIB, 16 * MIB, 5_000, 10 * MIB),
    "web": ExecLimits(30, 10, 1, 256 * MIB, 8, 64, 256 * MIB, 64 * MIB, 5_000, 10 * MIB),
    "bash": ExecLimits(30, output_bytes=MIB // 2),
    "git": ExecLimits(60, processes=64),
    "browser": ExecLimits(60, cores=2, memory_bytes=2048 * MIB, processes=256, open_files=1024, tmp_bytes=512 * MIB),
}
LONGEST_WALL_S: Mapping[str, float] = {"file": 30, "web": 120, "bash": 300, "git": 300, "browser": 300}


class Command(Struct, frozen=True):
    """A program to run. `argv` is never read by a shell; shell text is an argument of bash like any other.

    `workspace` is the one folder of the host that the command sees, `cwd` a path inside it. `engine` asks for a
    stronger sandbox than usual; asking for less changes nothing. `door` is the socket of an egress proxy, if any.
    `readable` are further folders of the host that it sees where they are, and cannot change. `may_set_git` is for one
    that only sets or reads settings of git: it may change those that start no program.

    A `trial` can write the workspace, and all that it changes there is discarded when it ends; it is ended soon after
    its first change. It is never `writable`: an engine that knows no trials runs it where nothing can be written. With
    `hides_keys` the box shows no file in the workspace that holds keys.
    """

    argv: tuple[str, ...]
    workspace: str = ""
    cwd: str = "."
    writable: bool = True
    stdin: bytes = b""
    env: Mapping[str, str] = struct_field(default_factory=dict)
    limits: ExecLimits = ExecLimits()
    engine: str = ""
    door: str = ""
    readable: tuple[str, ...] = ()
    trial: bool = False
    hides_keys: bool = False
    may_set_git: bool = False

    @property
    def seems_writable(self) -> bool:
        """Whether the command can write in what it takes for the workspace."""
        return self.writable or self.trial


def shell(text: str) -> tuple[str, ...]:
    """The argv that runs text in bash, with no start-up file read."""
    return "/bin/bash", "--noprofile", "--norc", "-c", text


class Output(Struct, frozen=True):
    """What came out of one stream: its beginning and end, how long all of it was, and the digest of all of it."""

    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    sha256: str = ""

    @property
    def truncated(self) -> bool:
        return self.size > len(self.head) + len(self.tail)

    @property
    def text(self) -> str:
        """The words, with a line that says how much is missing in the middle."""
        if not self.truncated:
            return (self.head + self.tail).decode("utf-8", "replace")
        missing = self.size - len(self.head) - len(self.tail)
        return (
            f"{self.head.decode('utf-8', 'replace')}\n"
            f"[… {missing} of {self.size} bytes left out, sha256 of all {self.sha256} …]\n"
            f"{self.tail.decode('utf-8', 'replace')}"
        )


class Ran(Struct, frozen=True):
    """How a command ended. `limit` names what ended it: wall, cpu, memory, file_size, repositories, changes, or none.

    `engine` and `profile` say what confined it; `weaker` lists what was promised and could not be had here.
    `notes` tell what was protected from it, and what of its work was moved aside. `changes` are names that a trial
    would have changed, a few of them; None where it was no trial. `hidden` are files and folders with keys.
    """

    exit_code: int | None
    signal: int | None = None
    stdout: Output = Output()
    stderr: Output = Output()
    elapsed_s: float = 0.0
    limit: str = ""
    engine: str = ""
    profile: str = ""
    weaker: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()


Listener = Callable[[str, bytes], None]
"""Told the name of a stream (`stdout` or `stderr`) and each piece of its bytes, as it comes."""


class ExecOps(Protocol):
    """Runs commands somewhere: in a sandbox of this machine, on another machine, in a test."""

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        """Run to the end, or to a limit. When this returns, or is canceled, nothing of the command is left alive.

        Raises SandboxUnavailable when it cannot be confined as it must be, ToolFailure when it cannot be started.
        """
        ...


Refusal = Callable[[str], str]
"""Says why an address may not be fetched; nothing where it may."""


def _refuses_nothing(_url: str) -> str:
    return ""


def _untold(_traffic: Traffic) -> None:
    pass


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One question to a web server.

    `secrets` are headers for the server named here: no redirect takes them to another one. At most `most_bytes` of the
    body are given back, counted after decompression; `redirects` may be lowered, not raised. `refusal` says why an
    address on the way may not be fetched, and nothing where it may. `traffic` is told which hosts were reached and
    refused on the way, also where it ends in a failure.
    """

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    most_bytes: int = 10 * MIB
    redirects: int = 5
    refusal: Refusal = field(default=_refuses_nothing, repr=False, compare=False)
    traffic: Callable[[Traffic], None] = field(default=_untold, repr=False, compare=False)


class WebAnswer(Struct, frozen=True):
    """What a web server said. `url` is where it was found in the end; header names are in lower case."""

    url: str
    status: int
    headers: Mapping[str, str] = struct_field(default_factory=dict)
    body: bytes = b""
    truncated: bool = False


class WebOps(Protocol):
    """Talks to web servers, by the rules that it is given with each request."""

    async def ask(self, request: WebRequest, network: tuple[str, ...]) -> WebAnswer:
        """Ask, follow redirects, and give the answer, whatever its status; `network` are the rules of a grant.

        Raises ToolFailure: permission_denied for a place that no rule allows or that is not public, invalid_params for
        what is not an http(s) URL, unavailable when the host does not answer, timeout when that takes too long.
        """
        ...
