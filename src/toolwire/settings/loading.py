"""Settings put together: built-in < user file < project files < TOOLWIRE_* < flags, then checked as a whole.

Every `toolwire.toml` in the working folder and above it counts, the outermost first. One that nothing says is trusted
can only tighten what weaker files say: a command in a sandbox may have written it in a folder of the project. One that
belongs to another user is not read at all.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.settings.keys import NAMED, known_keys, pattern_of
from toolwire.settings.schema import BUILT_IN, Layer, Origin, Settings, StoreSettings
from toolwire.settings.sections import InvalidValue, InvalidValues
from toolwire.settings.sources import (
    FILE_NAME,
    SettingEntry,
    environment_entries,
    file_content,
    file_entries,
    flag_entries,
)
from toolwire.settings.trust import (
    LowerLayers,
    Untrusted,
    changed_since_trusted,
    digest_of,
    is_trusted,
    lies_in_named_folder,
    needs_trust,
    sources_of,
)

if TYPE_CHECKING:
    import platformdirs
else:
    platformdirs = lazy_module("platformdirs")  # few processes need it

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
USUAL_HOME = StoreSettings().home

Entries = dict[tuple[str, ...], SettingEntry]
PATHS = frozenset(
    "grant.roots store.home tools.skills_path search.folder workspace.identity workspace.known_hosts "
    "services.NAME.socket registry.files records.key_file bus.credentials bus.ca bus.cert bus.key fleet.folder "
    "edge.ca edge.cert edge.key edge.signing_key".split()
)
IN_STATE = frozenset({"services.NAME.socket"})
"""Paths that start in the state folder where they are relative, whichever file says them."""

ADDED_UP = frozenset({("grant", "rules"), ("tools", "exclude")})
"""Lists of restrictions: what one file says is added to what weaker files say, so that none can drop them."""

FILES = (Layer.USER_FILE, Layer.PROJECT_FILE)
CHOICE = frozenset({("model",), ("profile",)})


class _Step(NamedTuple):
    """One project's file, and what holds without it: the user's file and the files of the folders above."""

    file: Path
    content: bytes
    entries: list[SettingEntry]
    below: Entries


def user_folder() -> Path:
    """The folder of the user's own settings file on this platform."""
    return Path(platformdirs.user_config_dir("toolwire", appauthor=False))


def load(
    cwd: Path,
    environ: Mapping[str, str],
    flags: Mapping[str, Any] | None = None,
    user_dir: Path | None = None,
    state_dir: Path | None = None,
    *,
    project_counts: bool = True,
) -> Settings:
    """Read all layers and check them. Raises SettingsError that names key, place and what is allowed.

    Nothing ambient is read: doors pass `os.environ`, `user_folder()` and `state_folder()`; without `user_dir` there is
    no user file, and without `state_dir` only TOOLWIRE_TRUST makes a project's file trusted. One that is not, and asks
    for what needs it, raises Untrusted. Flags are given by dotted key; text is read as in a variable, and None stands
    for a flag that was not given. Where the project does not count, no settings file in `cwd` or above it is read.
    """
    files = project_files(cwd, user_dir, environ) if project_counts else []
    settings, requests = _load_layers(cwd, environ, flags or {}, user_dir, files)
    above: list[Path] = []
    for request in requests:
        if request.wants and not is_trusted(request.file, request.digest, environ, state_dir, above):
            raise request.with_changes(changed_since_trusted(request, state_dir))
        above.append(request.file)
    return settings


def trust_requests(cwd: Path, environ: Mapping[str, str], user_dir: Path | None = None) -> list[Untrusted]:
    """What every project's file that counts in a folder asks for, trusted or not, the outermost file first.

    Raises SettingsError.
    """
    return _load_layers(cwd, environ, {}, user_dir, project_files(cwd, user_dir, environ))[1]


def _load_layers(
    cwd: Path, environ: Mapping[str, str], flags: Mapping[str, Any], user_dir: Path | None, files: Iterable[Path]
) -> tuple[Settings, list[Untrusted]]:
    own = _user_entries(user_dir, environ)
    steps, merged = _steps(files, own, environ)
    over = _merge_layers(merged, environment_entries(environ))
    over = _merge_layers(over, flag_entries(flags))
    stronger = {path: entry for path, entry in over.items() if entry.origin.layer not in FILES}
    folder = steps[0].file.parent if steps else None
    settings = _settings([_with_full_paths(entry, environ) for entry in over.values()])
    ignored = tuple(file for file in _files_above(cwd) if not _is_own(file, environ))
    settings = settings.found_at({entry.key: entry.origin for entry in over.values()}, folder, ignored)
    _require_profile(settings)
    for step in steps:  # a wrong value below must not be compared with, even where a nearer file replaces it
        _require_values([*{**step.below, **stronger}.values()])
    replaced = stronger.keys() | CHOICE if CHOICE & stronger.keys() else stronger.keys()
    return settings, [_request(step, cwd, folder, replaced) for step in steps]


def _steps(files: Iterable[Path], own: list[SettingEntry], environ: Mapping[str, str]) -> tuple[list[_Step], Entries]:
    """Every project's file on top of what is weaker, and what all files say together."""
    merged, steps = _merge_layers({}, own), []
    for file in files:
        content = file_content(file)
        entries = [_with_full_paths(entry, environ) for entry in file_entries(file, content, Layer.PROJECT_FILE)]
        entries = list(_one_spelling(entries))
        steps.append(_Step(file, content, entries, merged))
        merged = _merge_layers(merged, entries)
    return steps, merged


def _request(step: _Step, cwd: Path, outermost: Path | None, replaced: Collection[tuple[str, ...]]) -> Untrusted:
    """What a project's file asks for that needs trust. What a variable or a flag replaces needs none."""
    values = {path: entry.value for path, entry in step.below.items()}
    folder = step.file.parent
    roots = values.get(("grant", "roots"))
    home = values.get(("store", "home"), outermost / USUAL_HOME if outermost and outermost != folder else None)
    below = LowerLayers(
        values,
        folder,
        (folder,) if roots is None else tuple(cwd / root for root in roots),
        None if home is None else cwd / home,
    )
    wants = [entry for entry in step.entries if entry.path not in replaced and needs_trust(entry, below)]
    sources = sources_of(wants, (cwd, folder))
    own = {str(step.file): sha256(step.content).hexdigest()}
    return Untrusted(step.file, digest_of(step.content, sources), wants, own | sources)


def _user_entries(user_dir: Path | None, environ: Mapping[str, str]) -> list[SettingEntry]:
    if user_dir is None or not (file := user_dir / FILE_NAME).is_file():
        return []
    return [_with_full_paths(entry, environ) for entry in file_entries(file, file_content(file), Layer.USER_FILE)]


def _merge_layers(below: Entries, layer: list[SettingEntry]) -> Entries:
    entries = _one_spelling(_named_as_before(layer, below))
    return {**below, **{entry.path: _added_up(entry, below.get(entry.path)) for entry in entries}}


def _added_up(entry: SettingEntry, below: SettingEntry | None) -> SettingEntry:
    """An entry of a file, with what weaker files say where such lists add up."""
    adds = entry.path in ADDED_UP and entry.origin.layer in FILES and below is not None
    if not adds or below is None or not (_is_list(entry.value) and _is_list(below.value)):
        return entry
    place = f"{below.origin.place} and {entry.origin.place}"
    return entry._replace(
        value=[*below.value, *(one for one in entry.value if one not in below.value)],
        origin=entry.origin._replace(place=place),
    )


def project_files(cwd: Path, user_dir: Path | None = None, environ: Mapping[str, str] = NO_VARIABLES) -> list[Path]:
    """Every settings file in a folder or above it that counts, the outermost first. The user's own is none of them."""
    own = user_dir / FILE_NAME if user_dir else None
    found = [file for file in _files_above(cwd) if _is_own(file, environ)]
    return [file for file in found if own is None or not own.is_file() or not file.samefile(own)]


def project_file(cwd: Path, user_dir: Path | None = None, environ: Mapping[str, str] = NO_VARIABLES) -> Path | None:
    """The nearest settings file in a folder or above it, other than the user's own."""
    return next(reversed(project_files(cwd, user_dir, environ)), None)


def _files_above(cwd: Path) -> list[Path]:
    found = [folder / FILE_NAME for folder in (cwd, *cwd.parents) if (folder / FILE_NAME).is_file()]
    return found[::-1]


def _is_own(file: Path, environ: Mapping[str, str]) -> bool:
    """Whether a file and a link to it belong to this user or to root, or TOOLWIRE_TRUST names its folder.

    In `/tmp` and other folders that many can write, anyone can lay a file above the projects of everyone else.
    """
    try:
        owners = {file.lstat().st_uid, file.stat().st_uid}
    except OSError:
        return False
    return owners <= {0, os.geteuid()} or lies_in_named_folder(file, environ)


def _one_spelling(entries: Iterable[SettingEntry]) -> Iterable[SettingEntry]:
    """The entries of one layer with aliases replaced by what they stand for."""
    kept: dict[tuple[str, ...], tuple[SettingEntry, Any]] = {}
    for entry in entries:
        same = _without_alias(entry)
        earlier, _ = kept.setdefault(same.path, (entry, same.value))
        if earlier is not entry and kept[same.path][1] != same.value:
            raise SettingsError(
                f"{earlier.key} ({earlier.origin}) and {entry.key} ({entry.origin}) are the same setting and differ; "
                "keep one of them"
            )
    return [SettingEntry(path, value, entry.origin) for path, (entry, value) in kept.items()]


def _without_alias(entry: SettingEntry) -> SettingEntry:
    key = known_keys()[pattern_of(entry.path)]
    if not key.alias_of:
        return entry
    is_number = isinstance(entry.value, int | float) and not isinstance(entry.value, bool)
    value = entry.value / key.divisor if key.divisor > 1 and is_number else entry.value
    return SettingEntry(tuple(key.alias_of.split(".")), value, entry.origin)


def _named_as_before(entries: list[SettingEntry], merged: Mapping[tuple[str, ...], SettingEntry]) -> list[SettingEntry]:
    """Let a variable reach the profile `claude-agent` as CLAUDE_AGENT, since variables know no case and no hyphen."""
    names = {(path[0], _fold_case(path[1])): path[1] for path in merged if path[0] in NAMED}
    return [
        entry._replace(path=(entry.path[0], names.get((entry.path[0], entry.path[1]), entry.path[1]), *entry.path[2:]))
        if entry.path[0] in NAMED and entry.origin.layer is Layer.ENVIRONMENT
        else entry
        for entry in entries
    ]


def _fold_case(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _with_full_paths(entry: SettingEntry, environ: Mapping[str, str]) -> SettingEntry:
    """Read `~` as the home folder, and start a relative path of a project's file at that file."""
    pattern = pattern_of(_without_alias(entry).path)
    if pattern not in PATHS:
        return entry
    is_beside = entry.origin.layer is Layer.PROJECT_FILE and pattern not in IN_STATE
    start = str(entry.origin.file.parent) if entry.origin.file and is_beside else ""
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


def _tree(entries: list[SettingEntry]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for entry in entries:
        section = tree
        for name in entry.path[:-1]:
            section = section.setdefault(name, {})
        section[entry.path[-1]] = entry.value
    return tree


def _require_values(entries: list[SettingEntry]) -> None:
    """Raise SettingsError for a wrong value. What is missing may stand in a stronger layer."""
    try:
        Settings(**_tree(entries))
    except InvalidValues as wrong:
        sentences = _sentences([fault for fault in wrong.faults if fault.kind != "missing"], entries)
        if sentences:
            raise SettingsError("\n".join(sentences)) from None


def _settings(entries: list[SettingEntry]) -> Settings:
    try:
        return Settings(**_tree(entries))
    except InvalidValues as wrong:
        raise SettingsError("\n".join(_sentences(wrong.faults, entries))) from None


def _require_profile(settings: Settings) -> None:
    if settings.profile is not None and settings.profile not in settings.profiles:
        names = ", ".join(sorted(settings.profiles)) or "none is defined"
        named = settings.origin("profile").shows("profile", repr(settings.profile[:80]))
        raise SettingsError(f"{named}: no such profile. Profiles: {names}")


def _sentences(faults: list[InvalidValue], entries: list[SettingEntry]) -> list[str]:
    """A sentence for each key, about the first fault of it."""
    by_key = {fault.path: fault for fault in reversed(faults)}
    return [_sentence(by_key[key], entries) for key in reversed(by_key)]


def _sentence(fault: InvalidValue, entries: list[SettingEntry]) -> str:
    key = ".".join(fault.path)
    if fault.kind == "missing":
        origin = _any_origin(fault.path[:-1], entries)
        needs = ": a profile needs a provider and a model" if fault.path[0] == "profiles" else ""
        return f"{key} is missing ({origin}){needs}"
    origin = _any_origin(fault.path, entries)
    if fault.kind == "error":  # such a value may hold a secret, so it is not repeated
        return f"{origin.names(key)} {fault.error}"
    return f"{origin.shows(key, _format_value(fault.value))}: {_expected(fault.path)}"


def _any_origin(prefix: tuple[str, ...], entries: list[SettingEntry]) -> Origin:
    return next((entry.origin for entry in entries if entry.path[: len(prefix)] == prefix), BUILT_IN)


def _expected(path: tuple[str, ...]) -> str:
    if path == ("model",):
        return 'must be "provider:model", such as "ollama:qwen3" or "local:smollm2"'
    if path == ("tools", "modules"):
        return 'must be a list of import paths, such as ["package.module:object"]'
    return f"must be {known_keys()[pattern_of(path)].allowed}"


def _format_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
