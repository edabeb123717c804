"""What a project's settings file may not do without the user's word, and where that word is kept.

A file that came with a cloned repository could run code, widen the grant, or send keys elsewhere. What it sets of that
kind counts only once the user has trusted it, for one path and one content.
"""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwire.errors import SettingsError
from toolwire.protocol.engines import ENGINES
from toolwire.protocol.policy import Autonomy, Rule, Verdict
from toolwire.protocol.tools import Tier
from toolwire.record.ownership import TRUST_VARIABLE
from toolwire.settings.imports import find_imported
from toolwire.settings.keys import known_keys, pattern_of
from toolwire.settings.sources import SettingEntry

MOST_SOURCES = 2_000
_LONGEST_SHOWN = 2_000
_LONGEST_NOTE = 4 * 1024 * 1024
_MOST_NAMED = 5


class Untrusted(SettingsError):
    """A project's file asks for what only the user can allow.

    `sources` are the file, the modules that it names and what they import, each with a digest; `changed` are those of
    them that are not as they were when it was trusted last.
    """

    def __init__(
        self,
        file: Path,
        digest: str,
        wants: Iterable[SettingEntry],
        sources: Mapping[str, str] | None = None,
        changed: Sequence[str] = (),
    ) -> None:
        self.file = file
        self.digest = digest
        self.sources = dict(sources or {})
        self._entries = tuple(wants)
        self.wants = "\n".join(f"  {entry.key} = {_format_value(entry.value)}" for entry in self._entries)
        self.reason = f"{file} asks for what only you can allow"
        if changed:
            more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
            named = f"{', '.join(changed[:_MOST_NAMED])}{more}"
            self.reason = f"{file} must be trusted again, since {named} changed. It asks for what only you can allow"
        advice = f"Look at it; if you trust it, run: toolwire trust {shlex.quote(str(file.parent))}"
        super().__init__(f"{self.reason}:\n{self.wants}\n{advice}")

    def with_changes(self, changed: Sequence[str]) -> "Untrusted":
        """The same, with what has changed since it was trusted."""
        return Untrusted(self.file, self.digest, self._entries, self.sources, changed)


def sources_of(wants: Iterable[SettingEntry], folders: Iterable[Path]) -> dict[str, str]:
    """The modules that settings name and what they import, as far as it lies in the folders, and the files of
    registered tools, each with its digest.

    Tools may write to a project, so a word for its modules is for their content too. Raises SettingsError.
    """
    wants = tuple(wants)
    named = [path.partition(":")[0] for entry in wants if entry.path == ("tools", "modules") for path in entry.value]
    tops = dict.fromkeys(path.partition(".")[0] for path in named)
    places = list(dict.fromkeys(folder.resolve() for folder in folders))
    own = dict.fromkeys(file for top in tops for folder in places for file in _sources(folder, top))
    own |= dict.fromkeys(Path(file) for entry in wants if entry.path == ("registry", "files") for file in entry.value)
    others = sorted(set(find_imported(named, places, MOST_SOURCES)) - own.keys())
    if len(others) > MOST_SOURCES:
        raise SettingsError(f"tools.modules import more than {MOST_SOURCES} files of the project; let them import less")
    return {str(file): sha256(_source(file)).hexdigest() for file in (*own, *others)}


def digest_of(content: bytes, sources: Mapping[str, str]) -> str:
    """The digest of a settings file and of its sources."""
    whole = sha256(content)
    for file, digest in sources.items():
        whole.update(b"\0" + sha256(os.fsencode(file)).digest() + bytes.fromhex(digest))
    return whole.hexdigest()


def changed_since_trusted(request: Untrusted, state_dir: Path | None) -> list[str]:
    """What is not as it was when a file was trusted last, by name; nothing where it never was."""
    kept = _kept_lines(_note(request.file, state_dir)) if state_dir is not None else []
    known = dict(line.split(" ", 1)[::-1] for line in kept[2:] if " " in line)
    if not known:
        return []
    changed = [path for path in {**known, **request.sources} if known.get(path) != request.sources.get(path)]
    return sorted(os.path.relpath(path, request.file.parent) for path in changed)


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


class LowerLayers(Struct, frozen=True):
    """What holds without the file in `folder`: the values that weaker files set, and the folders that they mean.

    `home` is where the record lies already, None where no weaker file decides that.
    """

    values: Mapping[tuple[str, ...], Any]
    folder: Path
    roots: tuple[Path, ...]
    home: Path | None = None

    def value(self, path: tuple[str, ...]) -> Any:
        """What is set, or the default."""
        return self.values.get(path, known_keys()[pattern_of(path)].default)


def needs_trust(entry: SettingEntry, below: LowerLayers) -> bool:
    """Whether a (checked) entry of a project's file needs trust: unless it surely only tightens what holds without it.

    A key of which nothing is said here needs trust for any other value than the one that holds.
    """
    value, before = entry.value, below.value(entry.path)
    match entry.path:
        case ("temperature",) | ("output", _) | ("profiles", _, "temperature"):
            return False
        case ("tools", "skills_path"):  # each skill is trusted by itself, wherever it lies
            return False
        case ("model",):  # question, files and key would go there
            return value != before or below.value(("profile",)) is not None
        case ("profile",):
            return value != before or ("model",) in below.values
        case ("grant", _):
            return _widens_grant(entry, before, below)
        case ("agents", _, _):
            return _widens_agent(entry, before)
        case ("store", "home"):
            return not _within(value, [below.folder]) or below.home not in (None, Path(value))
        case ("search", "folder"):
            return not _within(value, [below.folder])
        case ("search", "backend"):  # what is searched for, and perhaps a key, would go elsewhere
            return value not in (before, "local", "none")
        case ("profiles", _, "max_tokens"):
            return _is_more(value, below.value(("max_tokens",)) if before is None else before)
        case ("profiles", _, "result_chars"):
            return _is_more(value, below.value(("loop", "result_chars")) if before is None else before)
        case ("tools", _):
            return _widens_tools(entry, before)
        case ("loop", "enabled"):
            return bool(value and not before)
        case ("loop", "envelope"):
            return bool(before and not value)
        case ("max_tokens",) | ("loop" | "budget", _) | ("approval", "expires_s" | "questions"):
            return _is_more(value, before)
    return not _is_same(value, before)


def _widens_grant(entry: SettingEntry, before: Any, below: LowerLayers) -> bool:
    value = entry.value
    match entry.path[1]:
        case "wary" | "by_intent":
            return bool(before and not value)
        case "rules":  # a file's rules are added to those of weaker files, so no deny or ask is gone
            return any(map(_allows, set(value) - set(before)))
        case "autonomy":
            return Autonomy[value.upper()] > Autonomy[before.upper()]
        case "tier":
            return Tier[value.upper()] > Tier[before.upper()]
        case "roots":
            return not all(_within(root, below.roots) for root in value)
        case "network":  # a new host, or a closed one that is gone
            return any(("!" in host) is (host in before) for host in set(value) ^ set(before))
        case "permissions" | "confirmed":
            return not set(value) <= set(before)
    return not _is_same(value, before)


def _widens_agent(entry: SettingEntry, before: Any) -> bool:
    """Whether an agent gets more than a weaker file gives it, or more than the least where none does."""
    value = entry.value
    match entry.path[2]:
        case "autonomy":
            return Autonomy[value.upper()] > Autonomy[(before or "readonly").upper()]
        case "tier":
            return Tier[value.upper()] > Tier[(before or "crawl").upper()]
        case "permissions":
            return not set(value) <= set(before or ())
    return not _is_same(value, before)


def _widens_tools(entry: SettingEntry, before: Any) -> bool:
    value = entry.value
    match entry.path[1]:
        case "modules":
            return bool(value)
        case "enable_sandboxing":
            return bool(before and not value)
        case "sandbox_engine":
            return ENGINES.index(value) < ENGINES.index(before)
        case "timeout_s" | "workspace_bytes" | "disk_share":
            return _is_more(value, before)
        case "models" | "secrets":
            return not set(value) <= set(before)
        case "groups":
            return "all" not in before and not set(value) <= set(before)
        case "include":  # none named means all of them
            return bool(before) and not (value and set(value) <= set(before))
        case "exclude":  # added to what weaker files exclude
            return False
        case "browser_scripts":
            return bool(value and not before)
    return not _is_same(value, before)


def _is_more(value: Any, before: Any) -> bool:
    """Whether a limit is higher than before; one that is not a number is no limit."""
    return isinstance(before, int | float) and not (isinstance(value, int | float) and value <= before)


def _is_same(value: Any, before: Any) -> bool:
    lists = isinstance(value, list | tuple) and isinstance(before, list | tuple)
    return bool(tuple(value) == tuple(before) if lists else value == before)


def _allows(rule: str) -> bool:
    return Rule.parse(rule).verdict is Verdict.ALLOW


def is_trusted(
    file: Path, digest: str, environ: Mapping[str, str], state_dir: Path | None, above: Iterable[Path] = ()
) -> bool:
    """Whether the user has trusted this file with this content, or by TOOLWIRE_TRUST whatever is in its folder.

    Of files that lie `above` one another, a folder of the variable speaks for the outermost in it: a tool may have
    written the others. Raises SettingsError for a variable that names no full path: `.` would be every folder.
    """
    if lies_in_named_folder(file, environ, above):
        return True
    return state_dir is not None and _read_note(_note(file, state_dir)) == digest


def lies_in_named_folder(file: Path, environ: Mapping[str, str], above: Iterable[Path] = ()) -> bool:
    """Whether TOOLWIRE_TRUST names a folder that holds this file and none of those `above`. Raises SettingsError."""
    for part in filter(None, environ.get(TRUST_VARIABLE, "").split(os.pathsep)):
        if not Path(part).is_absolute():
            raise SettingsError(f"{TRUST_VARIABLE} must name folders by their full path, not {part[:80]!r}")
        folders = [Path(part)]
        here = _within(file, folders) and _within(file.parent, folders)
        if here and not any(_within(other.parent, folders) for other in above):
            return True
    return False


def trust(file: Path, digest: str, state_dir: Path, sources: Mapping[str, str] | None = None) -> None:
    """Keep the user's word for this file with this content. Raises SettingsError when it cannot be written."""
    parts = [f"{one} {path}" for path, one in (sources or {}).items() if "\n" not in path]
    note = _note(file, state_dir)
    draft = note.with_suffix(f".{os.getpid()}")
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = "\n".join((digest, str(file), *parts, ""))
        draft.write_text(text, encoding="utf-8", errors="surrogateescape")
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
    # The folder is resolved, but not the file: a link to a file that is trusted elsewhere is not trusted here.
    return state_dir / "trusted" / sha256(os.fsencode(file.parent.resolve() / file.name)).hexdigest()


def _read_note(note: Path) -> str:
    return next(iter(_kept_lines(note)), "")


def _kept_lines(note: Path) -> list[str]:
    try:
        with note.open("rb") as kept:
            return os.fsdecode(kept.read(_LONGEST_NOTE)).splitlines()
    except OSError:
        return []


def _within(path: str | Path, folders: Iterable[Path]) -> bool:
    """Whether a path, with all its links followed, is one of the folders or beneath it."""
    real = Path(path).resolve()
    return any(real.is_relative_to(folder.resolve()) for folder in folders)


def _format_value(value: Any) -> str:
    """A value as it is written, with both ends of one that is too long: what matters may stand last."""
    text = repr(list(value) if isinstance(value, tuple) else value)
    left_out = len(text) - _LONGEST_SHOWN
    half = _LONGEST_SHOWN // 2
    return text if left_out <= 0 else f"{text[:half]} … {left_out:,} characters are not shown … {text[-half:]}"
