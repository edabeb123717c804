"""What a project's settings file may not do without the user's word, and where that word is kept.

A file that came with a cloned repository could run code, widen the grant, or send keys elsewhere. What it sets of that
kind counts only once the user has trusted it, for one path and one content.
"""

import os
import shlex
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import platformdirs

from toolwire.errors import SettingsError
from toolwire.protocol.policy import Autonomy, Rule, Verdict
from toolwire.protocol.tools import Tier
from toolwire.settings.imports import reached
from toolwire.settings.schema import SandboxEngine
from toolwire.settings.sources import Entry

VARIABLE = "TOOLWIRE_TRUST"
ENGINES = get_args(SandboxEngine)
MOST_SOURCES = 2_000
_LONGEST_SHOWN = 2_000


class Untrusted(SettingsError):
    """A project's file asks for what only the user can allow."""

    def __init__(self, file: Path, digest: str, wants: Iterable[Entry]) -> None:
        self.file = file
        self.digest = digest
        self.wants = "\n".join(f"  {entry.key} = {_shown(entry.value)}" for entry in wants)
        advice = f"Look at it; if you trust it, run: toolwire trust {shlex.quote(str(file.parent))}"
        super().__init__(f"{file} asks for what only you can allow:\n{self.wants}\n{advice}")


def state_folder() -> Path:
    """The folder of what toolwire remembers about its user on this platform."""
    return Path(platformdirs.user_state_dir("toolwire", appauthor=False))


def digest_of(content: bytes, wants: Iterable[Entry], folders: Iterable[Path]) -> str:
    """The digest of a settings file, of the modules it names and of what they import, as far as it lies in the folders.

    Tools may write to a project, so a word for its modules is for their content too. Raises SettingsError.
    """
    whole = sha256(content)
    named = [path.partition(":")[0] for entry in wants if entry.path == ("tools", "modules") for path in entry.value]
    tops = dict.fromkeys(path.partition(".")[0] for path in named)
    places = list(dict.fromkeys(folder.resolve() for folder in folders))
    own = dict.fromkeys(file for top in tops for folder in places for file in _sources(folder, top))
    others = sorted(set(reached(named, places, MOST_SOURCES)) - own.keys())
    if len(others) > MOST_SOURCES:
        raise SettingsError(f"tools.modules import more than {MOST_SOURCES} files of the project; let them import less")
    for file in (*own, *others):
        whole.update(b"\0" + sha256(os.fsencode(file)).digest() + sha256(_source(file)).digest())
    return whole.hexdigest()


def _sources(folder: Path, top: str) -> list[Path]:
    """The source files of a module or package in a folder. Raises SettingsError for more than one can look at."""
    package = folder / top
    found = [file for file in (folder / f"{top}.py",) if file.is_file()]
    if package.is_dir():
        found += islice(sorted(package.rglob("*.py")), MOST_SOURCES + 1)
    if len(found) > MOST_SOURCES:
        raise SettingsError(f"{package} has more than {MOST_SOURCES} files; tools.modules must name a smaller package")
    return found


def _source(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as wrong:
        raise SettingsError(f"{file} cannot be read: {wrong.strerror}") from None


def could_hurt(entry: Entry, below: Any, roots: Iterable[Path], folder: Path) -> bool:
    """Whether a (checked) entry of the file in `folder` needs trust.

    `below` is the value that would hold without it, and `roots` are the folders that could be reached.
    """
    value = entry.value
    match entry.path:
        case ("tools", "modules"):
            return bool(value)
        case ("tools", "enable_sandboxing") | ("grant", "wary" | "by_intent"):
            return bool(below and not value)
        case ("tools", "sandbox_engine"):
            return ENGINES.index(value) < ENGINES.index(below)
        case ("tools", "workspace_bytes") | ("budget", _) | ("loop", "calls" | "tokens" | "cost_usd" | "deadline_s"):
            return isinstance(below, int | float) and not (isinstance(value, int | float) and value <= below)
        case ("tools", "models"):
            return not set(value) <= set(below)
        case ("tools", "browser_scripts"):
            return bool(value and not below)
        case ("search", "folder"):
            return not _within(value, [folder])
        case ("search", _):  # what is searched for, and perhaps a key, would go elsewhere
            return bool(value != below and value != "local")
        case ("tools", "secrets"):
            return not set(value) <= set(below)
        case ("grant", "rules"):  # a new yes, or a no that is gone
            new, gone = set(value) - set(below), set(below) - set(value)
            return any(map(_allows, new)) or not all(map(_allows, gone))
        case ("grant", "autonomy"):
            return Autonomy[value.upper()] > Autonomy[below.upper()]
        case ("store", "kind"):  # what happens would be on no record
            return bool(value == "memory" != below)
        case ("store", "url" | "token_env"):  # everything that is kept would go there
            return bool(value != below)
        case ("store", "home"):
            return not _within(value, [folder])
        case ("grant", "tier"):
            return Tier[value.upper()] > Tier[below.upper()]
        case ("grant", "roots"):
            return not all(_within(root, roots) for root in value)
        case ("grant", "network"):  # a new host, or a closed one that is gone
            return any(("!" in host) is (host in below) for host in set(value) ^ set(below))
        case ("grant", _):
            is_less = isinstance(value, list | tuple) and set(value) <= set(below)
            return value != below and not is_less
        case ("agents", _, "autonomy"):  # whatever the user's own grant is, this is no more
            return Autonomy[value.upper()] > Autonomy[(below or "readonly").upper()]
        case ("agents", _, "tier"):
            return Tier[value.upper()] > Tier[(below or "crawl").upper()]
        case ("agents", _, "permissions"):
            return not set(value) <= set(below or ())
        case ("approval", "expires_s" | "questions"):
            return bool(value > below)
        case ("approval", _):  # somebody else would be told what is asked, or be the one who answers
            return bool(value != below)
        case ("profiles", _, "url" | "api_key_env"):
            return bool(value != below)
        case ("profiles", _, "provider"):  # the user's own profile would send its key to somebody else
            return below is not None and value != below
    return False


def _allows(rule: str) -> bool:
    return Rule.parse(rule).verdict is Verdict.ALLOW


def is_trusted(file: Path, digest: str, environ: Mapping[str, str], state_dir: Path | None) -> bool:
    """Whether the user has trusted this file with this content, or by TOOLWIRE_TRUST whatever is in its folder.

    Raises SettingsError for a variable that names no full path: `.` would be every folder.
    """
    for part in filter(None, environ.get(VARIABLE, "").split(os.pathsep)):
        if not Path(part).is_absolute():
            raise SettingsError(f"{VARIABLE} must name folders by their full path, not {part[:80]!r}")
        if _within(file, [Path(part)]):
            return True
    return state_dir is not None and _kept(_note(file, state_dir)) == digest


def trust(file: Path, digest: str, state_dir: Path) -> None:
    """Keep the user's word for this file with this content. Raises SettingsError when it cannot be written."""
    note = _note(file, state_dir)
    draft = note.with_suffix(f".{os.getpid()}")
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(f"{digest}\n{file}\n", encoding="utf-8", errors="surrogateescape")
        draft.replace(note)
    except OSError as wrong:
        raise SettingsError(f"{note} cannot be written: {wrong.strerror}; without it nothing is trusted") from None


def forget(file: Path, state_dir: Path) -> None:
    """Take the word back. Harmless when it was never given."""
    try:
        _note(file, state_dir).unlink(missing_ok=True)
    except OSError as wrong:
        raise SettingsError(f"{_note(file, state_dir)} cannot be removed: {wrong.strerror}") from None


def _note(file: Path, state_dir: Path) -> Path:
    return state_dir / "trusted" / sha256(os.fsencode(file.resolve())).hexdigest()


def _kept(note: Path) -> str:
    try:
        with note.open("rb") as kept:
            return kept.readline(128).decode("ascii", "replace").strip()
    except OSError:
        return ""


def _within(path: str | Path, folders: Iterable[Path]) -> bool:
    """Whether a path, with all its links followed, is one of the folders or beneath it."""
    real = Path(path).resolve()
    return any(real.is_relative_to(folder.resolve()) for folder in folders)


def _shown(value: Any) -> str:
    """A value as it is written, with both ends of one that is too long: what matters may stand last."""
    text = repr(list(value) if isinstance(value, tuple) else value)
    left_out = len(text) - _LONGEST_SHOWN
    half = _LONGEST_SHOWN // 2
    return text if left_out <= 0 else f"{text[:half]} … {left_out:,} characters are not shown … {text[-half:]}"
