"""The file that says what a device is, where its broker is, whom it obeys and what its tools may do.

The sections `agent` and `tools` have the names of the published format (`capabilities`, `sandboxing`, `timeout_ms`,
`paths.bin`); `grant`, `device` and the rest of `tools` are the settings of the same names.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct, field

from toolwire.define.nearest import nearest
from toolwire.errors import SettingsError
from toolwire.wire.mqtt.topics import AGENT_ID, DEFAULT_PREFIX, Topics

T = TypeVar("T")

LARGEST_FILE = 1 << 20
_SCHEMES = {"mqtt": 1883, "mqtts": 8883}
_SETTINGS = ("grant", "device")
_PASSED_ON = frozenset({"groups", "include", "exclude", "modules", "versions", "secrets", "toolchains", "readable"})
_NAMES: Mapping[str, frozenset[str]] = {
    "agent": frozenset("name prefix summary capabilities labels heartbeat_s".split()),
    "broker": frozenset("url client_id user password_file ca cert key version max_message_bytes keepalive_s".split()),
    "keys": frozenset("private orchestrators allow_plain".split()),
    "journal": frozenset("path keep_days".split()),
    "limits": frozenset("slots queue inline_bytes max_age_s drain_s".split()),
    "approvals": frozenset(["from"]),
    "hooks": frozenset("update_strategy evolution".split()),
    "skills": frozenset(["accept"]),
    "tools": frozenset("sandboxing timeout_ms paths".split()) | _PASSED_ON,
}


class BrokerConfig(Struct, frozen=True):
    host: str
    port: int
    tls: bool
    client_id: str
    user: str = ""
    password_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    version: int = 4
    max_message_bytes: int = 256 * 1024
    keepalive_s: int = 30


class AgentLimits(Struct, frozen=True):
    """How much at once and for how long.

    At most `slots` calls run and `queue` wait; a result above `inline_bytes` is kept as an artifact; a command without
    a deadline is good for `max_age_s`; at the end, running calls get `drain_s`.
    """

    slots: int = 8
    queue: int = 256
    inline_bytes: int = 256 * 1024
    max_age_s: float = 300.0
    drain_s: float = 10.0


class DeviceConfig(Struct, frozen=True):
    """The whole file. `flags` are what it says about settings, by dotted key."""

    folder: Path
    name: str
    broker: BrokerConfig
    private_key: Path
    orchestrators: tuple[str, ...] = ()
    allow_plain: bool = False
    topics: Topics = Topics()
    summary: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    heartbeat_s: float = 15.0
    journal: Path = Path("journal.db")
    keep_s: float = 7 * 86_400.0
    limits: AgentLimits = AgentLimits()
    trusts_approvals: bool = False
    hooks: Mapping[str, str] = field(default_factory=dict)
    skills: Path | None = None
    accepts_skills: tuple[str, ...] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)


def read_config(file: Path) -> DeviceConfig:
    """Raises SettingsError, which names the key."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise SettingsError(
            f"{file}: cannot be read ({error.strerror or error}); toolwire edge init writes one"
        ) from None
    if len(data) > LARGEST_FILE:
        raise SettingsError(f"{file}: is larger than {LARGEST_FILE} bytes")
    try:
        sections = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: is not TOML ({error})") from None
    return parse_config(sections, file.absolute().parent, str(file))


def parse_config(sections: Mapping[str, Any], folder: Path, source: str) -> DeviceConfig:
    """Raises SettingsError."""
    reader = _ConfigReader(sections, folder, source)
    reader.require_known()
    name = reader.get("agent", "name", _text)
    if not name or not AGENT_ID.fullmatch(name):
        raise reader.wrong("agent", "name", "must be 1 to 64 characters of A-Z a-z 0-9 _ -")
    plain = bool(reader.get("keys", "allow_plain", _flag))
    orchestrators = reader.get("keys", "orchestrators", _texts) or ()
    if not orchestrators and not plain:
        raise reader.wrong("keys", "orchestrators", "must list the public keys of those whose commands are obeyed")
    skills = _skills(reader)
    return DeviceConfig(
        folder,
        name,
        _broker(reader, name),
        reader.path("keys", "private", required=True) or folder,
        tuple(orchestrators),
        plain,
        _topics(reader),
        reader.get("agent", "summary", _text) or "",
        reader.get("agent", "labels", _table) or {},
        tuple(reader.get("agent", "capabilities", _texts) or ()),
        reader.get("agent", "heartbeat_s", _positive) or 15.0,
        reader.path("journal", "path") or folder / "journal.db",
        (reader.get("journal", "keep_days", _positive) or 7.0) * 86_400.0,
        _limits(reader),
        _trusts_approvals(reader),
        {key: value for key in ("update_strategy", "evolution") if (value := reader.get("hooks", key, _text))},
        skills,
        tuple(reader.get("skills", "accept", _texts) or ()),
        _flags(reader, skills),
    )


class _ConfigReader:
    """Looks values up and says where a wrong one stands."""

    def __init__(self, sections: Mapping[str, Any], folder: Path, source: str) -> None:
        self.sections = sections
        self.folder = folder
        self._source = source

    def require_known(self) -> None:
        for section, values in self.sections.items():
            if section in _SETTINGS:
                continue
            if section not in _NAMES:
                raise SettingsError(f"{self._source}: there is no section [{section[:60]}]{_advice(section, _NAMES)}")
            if not isinstance(values, dict):
                raise SettingsError(f"{self._source}: {section} must be a section")
            for key in values:
                if key not in _NAMES[section]:
                    advice = _advice(key, _NAMES[section])
                    raise SettingsError(f"{self._source}: there is no key {section}.{key[:60]}{advice}")

    def get(self, section: str, key: str, read: Callable[[Any], T]) -> T | None:
        value = self.sections.get(section, {}).get(key)
        if value is None:
            return None
        try:
            return read(value)
        except ValueError as why:
            raise self.wrong(section, key, str(why)) from None

    def path(self, section: str, key: str, *, required: bool = False) -> Path | None:
        value = self.get(section, key, _text)
        if value:
            return self.folder / Path(value).expanduser()
        if required:
            raise self.wrong(section, key, "is missing; name a file")
        return None

    def wrong(self, section: str, key: str, why: str) -> SettingsError:
        return SettingsError(f"{self._source}: {section}.{key} {why}")


def _advice(name: str, known: Any) -> str:
    near = nearest(name, known)
    return f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(sorted(known))}"


def _broker(reader: _ConfigReader, name: str) -> BrokerConfig:
    url = urlsplit(reader.get("broker", "url", _text) or "")
    try:
        host, port = url.hostname, url.port or _SCHEMES.get(url.scheme, 0)
    except ValueError:
        host, port = None, 0
    if url.scheme not in _SCHEMES or not host or url.path.strip("/") or "@" in url.netloc:
        raise reader.wrong(
            "broker", "url", "must be an address such as mqtts://broker.example:8883 or mqtt://127.0.0.1"
        )
    version = reader.get("broker", "version", _whole) or 4
    if version not in (4, 5):
        raise reader.wrong("broker", "version", "must be 4 (MQTT 3.1.1) or 5")
    client_id = reader.get("broker", "client_id", _text) or name
    tls = url.scheme == "mqtts"
    files = {key: reader.path("broker", key) for key in ("password_file", "ca", "cert", "key")}
    if not tls and (files["ca"] or files["cert"]):
        raise reader.wrong("broker", "url", "must begin with mqtts:// where certificates are named")
    return BrokerConfig(
        host, port, tls, client_id, reader.get("broker", "user", _text) or "", files["password_file"], files["ca"],
        files["cert"], files["key"], version, reader.get("broker", "max_message_bytes", _message_size) or 256 * 1024,
        reader.get("broker", "keepalive_s", _whole) or 30,
    )  # fmt: skip


def _topics(reader: _ConfigReader) -> Topics:
    try:
        return Topics(reader.get("agent", "prefix", _text) or DEFAULT_PREFIX)
    except ValueError as why:
        raise reader.wrong("agent", "prefix", str(why)) from None


def _limits(reader: _ConfigReader) -> AgentLimits:
    usual = AgentLimits()
    return AgentLimits(
        reader.get("limits", "slots", _whole) or usual.slots,
        reader.get("limits", "queue", _whole) or usual.queue,
        reader.get("limits", "inline_bytes", _whole) or usual.inline_bytes,
        reader.get("limits", "max_age_s", _positive) or usual.max_age_s,
        reader.get("limits", "drain_s", _positive) or usual.drain_s,
    )


def _trusts_approvals(reader: _ConfigReader) -> bool:
    chosen = reader.get("approvals", "from", _text) or "device"
    if chosen not in ("device", "orchestrator"):
        raise reader.wrong("approvals", "from", "must be device or orchestrator")
    return chosen == "orchestrator"


def _skills(reader: _ConfigReader) -> Path | None:
    """The folder of skills. The published format names the programs of one skill: SKILLS/NAME/bin."""
    paths = reader.get("tools", "paths", _table) or {}
    for key in paths:
        if key not in ("bin", "skills"):
            raise reader.wrong("tools.paths", key, "is not known; there are bin, skills")
    named = paths.get("skills") or paths.get("bin")
    if named is None:
        return None
    if not isinstance(named, str):
        raise reader.wrong("tools", "paths", "must name folders")
    folder = reader.folder / Path(named).expanduser()
    return folder if "skills" in paths else folder.parent.parent


def _flags(reader: _ConfigReader, skills: Path | None) -> dict[str, Any]:
    flags: dict[str, Any] = {}
    for section in _SETTINGS:
        flags |= {f"{section}.{key}": value for key, value in (reader.sections.get(section) or {}).items()}
    tools = reader.sections.get("tools") or {}
    flags |= {f"tools.{key}": value for key, value in tools.items() if key in _PASSED_ON}
    capabilities = reader.get("agent", "capabilities", _texts)
    if capabilities is not None:
        flags["grant.permissions"] = capabilities
    if (engine := reader.get("tools", "sandboxing", _text)) is not None:
        flags |= {"tools.enable_sandboxing": engine != "none", "tools.sandbox_engine": engine}
    if (timeout_ms := reader.get("tools", "timeout_ms", _positive)) is not None:
        flags["tools.timeout_s"] = timeout_ms / 1000
    if skills is not None:
        flags["tools.skills_path"] = str(skills)
    return flags


def _text(value: Any) -> str:
    if isinstance(value, str) and len(value) <= 4_096 and not re.search(r"[\x00-\x1f]", value):
        return value
    raise ValueError("must be text")


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("must be a list of texts")


def _table(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError("must be a table")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("must be true or false")


def _whole(value: Any) -> int:
    if type(value) is int and 0 < value < 2**31:
        return value
    raise ValueError("must be a whole number above 0")


def _message_size(value: Any) -> int:
    if type(value) is int and 2_048 <= value < 2**28:
        return value
    raise ValueError("must be a whole number from 2048 on")


def _positive(value: Any) -> float:
    if type(value) in (int, float) and 0 < value < 1e9:
        return float(value)
    raise ValueError("must be a number above 0")
