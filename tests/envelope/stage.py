"""A stage for the real `te` command: a folder of its own, and a home of its own for what is kept."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked
from tests.forked import TE
from toolwire.deliver.envelope import Envelope, read

LIMIT_S = 60


@dataclass(frozen=True, slots=True)
class Ran:
    """How `te` ended."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def envelope(self) -> Envelope:
        found = read(self.out)
        assert found is not None, self.out[:500]
        return found[0]

    @property
    def lines(self) -> list[str]:
        return self.envelope.body.split("\n") if self.envelope.body else []


@dataclass(slots=True)
class Stage:
    """A folder in which `te` is run, with an environment that knows nothing of this machine."""

    folder: Path
    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    def te(self, *words: str, stdin: bytes = b"", cwd: Path | None = None, **environ: str) -> Ran:
        home = {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state"), "TMPDIR": str(self.home)}
        own = {"PATH": os.environ["PATH"], "PYTHONUTF8": "1", **home}
        with forked.start([TE, *words], cwd=cwd or self.folder, env={**own, **self.environ, **environ}) as process:
            out, err = process.communicate(stdin, timeout=LIMIT_S)
        return Ran(process.returncode, out.decode(errors="replace"), err.decode(), out)

    def write(self, path: str, text: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file
