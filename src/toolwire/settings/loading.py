"""Settings put together: built-in < user file < toolwire.toml < TOOLWIRE_* < flags, then checked as a whole."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import ValidationError

from toolwire.errors import SettingsError
from toolwire.settings.keys import NAMED, known_keys, pattern_of
from toolwire.settings.schema import BUILT_IN, Layer, Origin, Settings
from toolwire.settings.sources import (
    FILE_NAME,
    Entry,
    environment_entries,
    file_content,
    file_entries,
    flag_entries,
)
from toolwire.settings.trust import Untrusted, could_hurt, digest_of, is_trusted

Entries = dict[tuple[str, ...], Entry]
PATHS = frozenset({"grant.roots", "store.home", "tools.skills_path", "search.folder"})


def user_folder() -> Path:
    """The folder of the user's own settings file on this platform."""
    return Path(platformdirs.user_config_dir("toolwire", appauthor=False))


def load(
    cwd: Path,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    user_dir: Path | None = None,
    state_dir: Path | None = None,
) -> Settings:
    """Read all layers and check them. Raises SettingsError that names key, place and what is allowed.

    Nothing ambient is read: doors pass `os.environ`, `user_folder()` and `state_folder()`; without `user_dir` there is
    no user file, and without `state_dir` only TOOLWIRE_TRUST makes a project's file trusted. One that is not, and asks
    for what needs it, raises Untrusted. Flags are given by dotted key; text is read as in a variable, and None stands
    for a flag that was not given.
    """
    project = project_file(cwd)
    folder = project.parent if project else None
    content = file_content(project) if project else b""
    below = _merged({}, _user_entries(user_dir))
    merged = below
    for layer in (
        file_entries(project, content, Layer.PROJECT_FILE) if project else [],
        environment_entries(environ),
        flag_entries(flags or {}),
    ):
        merged = _merged(merged, layer)
    entries = [_with_full_paths(entry, folder, environ) for entry in merged.values()]
    settings = _settings(entries, folder)
    if project:
        own = [entry for entry in entries if entry.origin.layer is Layer.PROJECT_FILE]
        under = {path: _with_full_paths(entry, None, environ).value for path, entry in below.items()}
        wants = [entry for entry in own if _needs_trust(entry, under, cwd, project.parent)]
        digest = digest_of(content, wants, (cwd, project.parent))
        if wants and not is_trusted(project, digest, environ, state_dir):
            raise Untrusted(project, digest, wants)
    return settings


def _user_entries(user_dir: Path | None) -> list[Entry]:
    if user_dir is None or not (file := user_dir / FILE_NAME).is_file():
        return []
    return file_entries(file, file_content(file), Layer.USER_FILE)


def _merged(below: Entries, layer: list[Entry]) -> Entries:
    return {**below, **{entry.path: entry for entry in _one_spelling(_named_as_before(layer, below))}}


def _needs_trust(entry: Entry, under: Mapping[tuple[str, ...], Any], cwd: Path, folder: Path) -> bool:
    """Whether an entry of the project's file could hurt, given the values that the user's own file sets."""
    value = under.get(entry.path, known_keys()[pattern_of(entry.path)].default)
    roots = under.get(("grant", "roots"))
    return could_hurt(entry, value, [folder] if roots is None else [cwd / root for root in roots], folder)


def project_file(cwd: Path) -> Path | None:
    """The nearest settings file in a folder or above it."""
    return next((folder / FILE_NAME for folder in (cwd, *cwd.parents) if (folder / FILE_NAME).is_file()), None)


def _one_spelling(entries: Iterable[Entry]) -> Iterable[Entry]:
    """The entries of one layer with aliases replaced by what they stand for."""
    kept: dict[tuple[str, ...], tuple[Entry, Any]] = {}
    for entry in entries:
        same = _without_alias(entry)
        earlier, _ = kept.setdefault(same.path, (entry, same.value))
        if earlier is not entry and kept[same.path][1] != same.value:
            raise SettingsError(
                f"{earlier.key} ({earlier.origin}) and {entry.key} ({entry.origin}) are the same setting and differ; "
                "keep one of them"
            )
    return [Entry(path, value, entry.origin) for path, (entry, value) in kept.items()]


def _without_alias(entry: Entry) -> Entry:
    key = known_keys()[pattern_of(entry.path)]
    if not key.alias_of:
        return entry
    is_number = isinstance(entry.value, int | float) and not isinstance(entry.value, bool)
    value = entry.value / key.divisor if key.divisor > 1 and is_number else entry.value
    return Entry(tuple(key.alias_of.split(".")), value, entry.origin)


def _named_as_before(entries: list[Entry], merged: Mapping[tuple[str, ...], Entry]) -> list[Entry]:
    """Let a variable reach the profile `claude-agent` as CLAUDE_AGENT, since variables know no case and no hyphen."""
    names = {(path[0], _folded(path[1])): path[1] for path in merged if path[0] in NAMED}
    return [
        entry._replace(path=(entry.path[0], names.get((entry.path[0], entry.path[1]), entry.path[1]), *entry.path[2:]))
        if entry.path[0] in NAMED and entry.origin.layer is Layer.ENVIRONMENT
        else entry
        for entry in entries
    ]


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _with_full_paths(entry: Entry, folder: Path | None, environ: Mapping[str, str]) -> Entry:
    """Read `~` as the home folder, and start a relative path of a project's file at that file."""
    if entry.key not in PATHS:
        return entry
    start = str(folder) if entry.origin.layer is Layer.PROJECT_FILE else ""
    home = environ.get("HOME") or environ.get("USERPROFILE") or "~"

    def full(path: Any) -> Any:
        if not isinstance(path, str) or not path:
            return path
        if path == "~" or path.startswith("~/"):
            path = home + path[1:]
        return str(Path(start, path))

    return entry._replace(value=[full(path) for path in entry.value] if _is_list(entry.value) else full(entry.value))


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _settings(entries: list[Entry], folder: Path | None) -> Settings:
    tree: dict[str, Any] = {}
    for entry in entries:
        section = tree
        for name in entry.path[:-1]:
            section = section.setdefault(name, {})
        section[entry.path[-1]] = entry.value
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as wrong:
        raise SettingsError("\n".join(_sentences(wrong, entries))) from None
    settings._origins |= {entry.key: entry.origin for entry in entries}
    settings._folder = folder
    _require_profile(settings)
    return settings


def _require_profile(settings: Settings) -> None:
    if settings.profile is not None and settings.profile not in settings.profiles:
        names = ", ".join(sorted(settings.profiles)) or "none is defined"
        named = settings.origin("profile").shows("profile", repr(settings.profile[:80]))
        raise SettingsError(f"{named}: no such profile. Profiles: {names}")


def _sentences(wrong: ValidationError, entries: list[Entry]) -> list[str]:
    faults = wrong.errors(include_url=False)
    by_key = {_key_of(fault["loc"]): fault for fault in reversed(faults)}
    return [_sentence(key, dict(by_key[key]), entries) for key in reversed(by_key)]


def _key_of(place: tuple[int | str, ...]) -> tuple[str, ...]:
    """The key that a fault is about: its place without positions in a list."""
    return tuple(part for part in place if isinstance(part, str))


def _sentence(path: tuple[str, ...], fault: dict[str, Any], entries: list[Entry]) -> str:
    key = ".".join(path)
    if fault["type"] == "missing":
        origin = _any_origin(path[:-1], entries)
        return f"{key} is missing ({origin}): a profile needs a provider and a model"
    origin = _any_origin(path, entries)
    if fault["type"] == "value_error":  # such a value may hold a secret, so it is not repeated
        return f"{origin.names(key)} {fault['ctx']['error']}"
    return f"{origin.shows(key, _shown(fault['input']))}: {_expected(path)}"


def _any_origin(prefix: tuple[str, ...], entries: list[Entry]) -> Origin:
    return next((entry.origin for entry in entries if entry.path[: len(prefix)] == prefix), BUILT_IN)


def _expected(path: tuple[str, ...]) -> str:
    if path == ("model",):
        return 'must be "provider:model", such as "ollama:qwen3" or "local:smollm2"'
    if path == ("tools", "modules"):
        return 'must be a list of import paths, such as ["package.module:object"]'
    return f"must be {known_keys()[pattern_of(path)].allowed}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
