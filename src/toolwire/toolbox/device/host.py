"""The kernel's own files about this machine: what lies in `proc` and `sys`."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from toolwire.toolbox.device.kinds import unavailable


class HostTree(Struct, frozen=True):
    """A folder that holds `proc` and `sys`: `/`, or where a container has those of its host."""

    root: Path = Path("/")

    def text(self, path: str) -> str:
        """The whole of a file. Raises ToolFailure where it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            reason = error.strerror or str(error)
            raise unavailable(
                f"this machine does not tell: {self.root / path} cannot be read ({reason}); "
                "device.root names the folder that holds proc and sys"
            ) from None

    def line(self, path: str, otherwise: str = "") -> str:
        """A file of one line without its end; `otherwise` where it cannot be read."""
        try:
            text = (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return otherwise
        return text.replace("\0", "").strip()

    def number(self, path: str) -> int | None:
        """A file that holds one whole number; None where it cannot be read or holds something else."""
        try:
            return int(self.line(path))
        except ValueError:
            return None

    def folders(self, path: str, pattern: str = "*") -> Iterator[tuple[str, str]]:
        """What lies in a folder by these names, in order: each with its path for the other methods. May be nothing."""
        try:
            found = sorted((self.root / path).glob(pattern))
        except OSError:
            found = []
        yield from ((each.name, f"{path}/{each.name}") for each in found)

    def fields(self, path: str) -> Mapping[str, str]:
        """The lines `name: value` of a file. Raises ToolFailure where it cannot be read."""
        lines = (line.partition(":") for line in self.text(path).splitlines())
        return {name.strip(): value.strip() for name, _, value in lines}
