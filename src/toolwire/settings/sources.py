"""The layers as they are written: files, variables and flags, turned into entries that remember their place."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.settings.keys import known_keys, known_sections, nearest_keys, pattern_of
from toolwire.settings.schema import Layer, Origin

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = lazy_module("tomllib")  # most folders have no settings file

FILE_NAME = "toolwire.toml"
PREFIX = "TOOLWIRE_"
NO_SETTINGS = frozenset({"TOOLWIRE_TRUST"})
LARGEST_FILE = 64 * 1024
LONGEST_LINE = 2000  # tomllib takes quadratic time for a dotted key

# How the command line spells the keys that have a flag; a complaint shows what was typed.
FLAGS = {
    "model": "--model",
    "profile": "--profile",
    "store.home": "--home",
    "grant.tier": "--tier",
    "grant.roots": "--root",
    "loop.iterations": "--iterations",
    "loop.deadline_s": "--deadline",
    "loop.tokens": "--tokens",
    "loop.enabled": "--no-tools",
    "serve.host": "--host",
    "serve.port": "--port",
    "serve.upstream": "--upstream",
    "serve.upstream_dialect": "--upstream-dialect",
    "serve.model": "--model",
    "serve.key_env": "--key-env",
    "serve.token_env": "--token-env",
    "serve.allow_hosts": "--allow-host",
    "serve.json_logs": "--json-logs",
    "serve.agents": "--agents",
}

KEY_WORDS = frozenset({"key", "apikey", "token", "secret", "password", "passwd", "credential", "credentials", "auth"})
KEY_SHAPES = ("sk-", "sk_", "pk-", "rk-", "xai-", "gsk_", "ghp_", "github_pat_", "hf_", "AIza", "AKIA", "Bearer ")


class SettingEntry(NamedTuple):
    """One value that was set, and where."""

    path: tuple[str, ...]
    value: Any
    origin: Origin

    @property
    def key(self) -> str:
        return ".".join(self.path)


def file_entries(path: Path, content: bytes, layer: Layer) -> list[SettingEntry]:
    """The entries of one TOML file. Raises SettingsError with the file and, where it can be told, the line."""
    text = _decoded(path, content)
    if any(len(line) > LONGEST_LINE for line in text.split("\n")):
        raise SettingsError(f"{path} has a line of more than {LONGEST_LINE} characters; break it into several")
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{path} is nested too deeply to be a settings file") from None
    except ValueError as broken:
        reason = str(broken).replace("at end of document", f"at line {text.count(chr(10)) + 1}, the end of the file")
        raise SettingsError(f"{path} is not valid TOML: {reason}. Correct that place and try again.") from None
    lines = _lines_of_keys(text)

    def origin(key: tuple[str, ...]) -> Origin:
        line = next((lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), None)
        return Origin(layer, f"{path}, line {line}" if line else str(path), path)

    return list(_flatten(table, (), origin))


def file_content(path: Path) -> bytes:
    """What is in a settings file. Raises SettingsError."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_FILE:
        raise SettingsError(f"{path} is larger than {LARGEST_FILE // 1024} KiB; that is not a settings file")
    return content


def _decoded(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def _lines_of_keys(text: str) -> dict[tuple[str, ...], int]:
    """The line on which each table or key is first written; empty where multi-line strings could mislead."""
    found: dict[tuple[str, ...], int] = {}
    if '"""' in text or "'''" in text:
        return found
    table: tuple[str, ...] = ()
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if line.startswith("[") and (header := _keys_in(line)):
            table = header
            found.setdefault(table, number)
        elif "=" in line and (keys := _keys_in(line.partition("=")[0] + "= 0")):
            for end in range(1, len(keys) + 1):
                found.setdefault(table + keys[:end], number)
    return found


def _keys_in(line: str) -> tuple[str, ...]:
    try:
        table: Any = tomllib.loads(line[:1000])
    except (ValueError, RecursionError):
        return ()
    keys: list[str] = []
    while isinstance(table, dict) and table:
        (name, table), *_ = table.items()
        keys.append(name)
    return tuple(keys)


def _flatten(
    table: Mapping[str, Any], prefix: tuple[str, ...], origin: Callable[[tuple[str, ...]], Origin]
) -> Iterator[SettingEntry]:
    for name, value in table.items():
        path = (*prefix, name)
        if pattern_of(path) not in known_sections():
            yield check_entry(SettingEntry(path, value, origin(path)))
        elif isinstance(value, Mapping):
            yield from _flatten(value, path, origin)
        else:
            raise SettingsError(f"{'.'.join(path)} ({origin(path)}) is a section: write [{'.'.join(path)}] above keys")


def environment_entries(environ: Mapping[str, str]) -> list[SettingEntry]:
    """The entries of the `TOOLWIRE_*` variables; an empty variable counts as unset."""
    names = sorted(name for name in environ if name.startswith(PREFIX) and environ[name] and name not in NO_SETTINGS)
    return [_of_variable(name, environ[name]) for name in names]


def _of_variable(name: str, text: str) -> SettingEntry:
    path = tuple(name.removeprefix(PREFIX).lower().split("__"))
    entry = check_entry(SettingEntry(path, text, Origin(Layer.ENVIRONMENT, name)))
    return entry._replace(value=known_keys()[pattern_of(path)].read_text(text.strip()))


def flag_entries(flags: Mapping[str, Any]) -> list[SettingEntry]:
    """The entries of flags given by dotted key; None means that the flag was not given."""
    return [_of_flag(key, value) for key, value in flags.items() if value is not None]


def _of_flag(key: str, value: Any) -> SettingEntry:
    path = tuple(key.split("."))
    entry = check_entry(SettingEntry(path, value, Origin(Layer.FLAGS, FLAGS.get(key, f"flag {key}"))))
    return entry._replace(value=known_keys()[pattern_of(path)].read_text(value)) if isinstance(value, str) else entry


def check_entry(entry: SettingEntry) -> SettingEntry:
    """The entry, if its key is known and nothing in it is a secret. Raises SettingsError."""
    known = pattern_of(entry.path) in known_keys()
    if _is_secret(entry, known):
        raise SettingsError(
            f"{entry.origin.names(entry.key[:128])} looks like a secret; settings keep none. "
            "Put it in an environment variable and write the name of that variable in api_key_env of a profile."
        )
    if known:
        return entry
    names = [_spelled(key, entry.origin) for key in nearest_keys(entry.key)]
    advice = f"did you mean {' or '.join(names)}?" if names else "`toolwire docs settings` has all keys."
    raise SettingsError(f"unknown setting {entry.key[:128]!r} ({entry.origin}); {advice}")


def _is_secret(entry: SettingEntry, known: bool) -> bool:
    words = entry.path[-1].lower().replace("-", "_").split("_")
    if not known and isinstance(entry.value, str) and KEY_WORDS.intersection(words):
        return True
    values = entry.value if isinstance(entry.value, list | tuple) else [entry.value]
    return any(isinstance(value, str) and value.startswith(KEY_SHAPES) for value in values)


def _spelled(key: str, origin: Origin) -> str:
    return PREFIX + key.upper().replace(".", "__") if origin.layer is Layer.ENVIRONMENT else key
