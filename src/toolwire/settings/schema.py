"""Every setting: its name, type, default and meaning. Nothing here reads anything."""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from toolwire.define.versions import read_pin
from toolwire.deliver.secrets import NO_SECRETS, Secret, Secrets
from toolwire.errors import DefinitionError, SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.budgets import Budget
from toolwire.protocol.devices import LOOKING_COMMANDS
from toolwire.protocol.engines import DEFAULT_ENGINE, SandboxEngine
from toolwire.protocol.policy import Autonomy, Rule
from toolwire.protocol.providers import ChatApi, tools_for_models
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.turns import Limits
from toolwire.settings.choices import OneOf
from toolwire.settings.sections import AfterValidator, BeforeValidator, Field, Section

if TYPE_CHECKING:
    from toolwire.execute.egress import rules as host_rules
    from toolwire.wire.formats import registry as formats
else:
    # Loaded where hosts are named: reading names of hosts needs tables that most commands do without.
    host_rules = lazy_module("toolwire.execute.egress.rules")
    # Loaded where a format is named: the table holds every dialect, which only a model behind an API needs.
    formats = lazy_module("toolwire.wire.formats.registry")


def _formats() -> tuple[str, ...]:
    return tuple(formats.DIALECTS)


def _parsers() -> tuple[str, ...]:
    return (*formats.DIALECTS, "anthropic_xml", "text")


DefinitionFormat = Annotated[str, AfterValidator(OneOf(_formats))]
CallParser = Annotated[str, AfterValidator(OneOf(_parsers))]
UpstreamDialect = Literal["auto", ChatApi]


class Layer(IntEnum):
    """Where a value can come from, weakest first."""

    BUILT_IN = 0
    USER_FILE = 1
    PROJECT_FILE = 2
    ENVIRONMENT = 3
    FLAGS = 4


class Origin(NamedTuple):
    """Which layer set a value, and the very place: a file and line, a variable, or a flag."""

    layer: Layer
    place: str
    file: Path | None = None

    @property
    def strength(self) -> tuple[Layer, int]:
        """What a stronger place has more of: a later layer, and among project files the nearer one."""
        return self.layer, len(self.file.parts) if self.file else 0

    def __str__(self) -> str:
        return self.place

    def names(self, key: str) -> str:
        """The key and where it was set; for a flag, the flag alone."""
        return self.place if self.layer is Layer.FLAGS else f"{key} ({self.place})"

    def shows(self, key: str, value: str) -> str:
        """The same with the value that was set."""
        return f"{self.place} {value}" if self.layer is Layer.FLAGS else f"{key} = {value} ({self.place})"


BUILT_IN = Origin(Layer.BUILT_IN, "built-in default")


def _collector_url(url: str | None) -> str | None:
    if url is not None and "@" in urlsplit(url).netloc:
        raise ValueError("must not contain a user name or password; set OTEL_EXPORTER_OTLP_HEADERS instead")
    return _plain_url(url)


def _plain_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must be an http:// or https:// address")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user name or password; name a variable in api_key_env instead")
    return url


def _store_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    postgres = parts.scheme in {"postgresql", "postgres"}
    if not (postgres or parts.scheme in {"libsql", "https", "http"}) or not parts.hostname:
        raise ValueError("must be the address of a server, such as libsql://host or postgresql://user@host/database")
    if parts.password is not None or (parts.username is not None and not postgres):
        raise ValueError("must not contain a user name or password; name a variable in token_env instead")
    return url


def _broker_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"nats", "tls"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ValueError("must be addresses of NATS servers, such as nats://127.0.0.1:4222 or tls://nats1.example:4222")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user name or password; set bus.user and bus.token_env, or bus.credentials")
    return url


def _device_broker_url(url: str | None) -> str | None:
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"mqtt", "mqtts", "nats", "tls"} or not parts.hostname or parts.path.strip("/"):
        raise ValueError("must be the address of a broker, such as mqtt://127.0.0.1:1883 or nats://127.0.0.1:4222")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user name or password; set edge.user and edge.token_env")
    return url


def _topic_prefix(prefix: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,7}", prefix):
        raise ValueError("must be 1 to 8 words of letters, digits, '_' or '-', joined by '/'")
    return prefix


def _public_key(line: str | None) -> str | None:
    if line is not None and not re.fullmatch(r"ed25519 [A-Za-z0-9+/]{43}=", line.strip()):
        raise ValueError("must be a public key, written as 'ed25519 BASE64'")
    return line


def _stream_name(name: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
        raise ValueError("must be 1 to 64 letters, digits, '_' or '-'")
    return name


def _hook(url: str | None) -> str | None:
    if url is not None and "@" in urlsplit(url).netloc:
        raise ValueError("must not contain a user name or password; sign it with webhook_key_env instead")
    return _plain_url(url)


def _variable(name: str | None) -> str | None:
    if name is None:
        return None
    if not name.isidentifier() or not name.isascii():
        raise ValueError("must be the name of an environment variable, such as OPENAI_API_KEY, not the key itself")
    if name.upper().startswith("TOOLWIRE_"):
        raise ValueError("must not begin with TOOLWIRE_, since such variables are settings; choose another name")
    return name


def _name(text: str) -> str:
    if not text.strip():
        raise ValueError("has an empty name; leave it out")
    return text


def _rule(text: str) -> str:
    Rule.parse(text)
    return text


def _host_rule(text: str) -> str:
    _require_hosts(lambda: host_rules.read_rule(text))
    return text


def _require_hosts(read: Callable[[], object]) -> None:
    try:
        read()
    except ValueError as wrong:
        raise ValueError(f"has a rule that cannot be read: {wrong}") from None


class RemoteFolder(NamedTuple):
    """A folder on another machine; port 0 is SSH's usual one."""

    host: str
    path: str
    user: str = ""
    port: int = 0

    @property
    def user_and_host(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host

    @classmethod
    def parse(cls, url: str) -> "RemoteFolder":
        """Read `ssh://user@host:22/srv/project`. Raises ValueError."""
        parts = urlsplit(url)
        folder = unquote(parts.path).rstrip("/")
        if parts.password is not None:
            raise ValueError("must not contain a password; SSH uses your keys")
        if parts.scheme != "ssh" or not parts.hostname or not folder or parts.query or parts.fragment:
            raise ValueError("must read like ssh://user@host/srv/project")
        if parts.hostname.startswith("-") or (parts.username or "").startswith("-") or ".." in folder.split("/"):
            raise ValueError("must read like ssh://user@host/srv/project")
        return cls(parts.hostname, folder, parts.username or "", parts.port or 0)


def _remote(url: str | None) -> str | None:
    if url is not None:
        RemoteFolder.parse(url)
    return url


class SecretLine(NamedTuple):
    """One of `tools.secrets`: which variable, for which tools, to which hosts."""

    variable: str
    tools: tuple[str, ...]
    hosts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "SecretLine":
        """Read `GITHUB_TOKEN for webfetch, bash at api.github.com`. Raises ValueError."""
        name, _, rest = text.partition(" for ")
        tools, said, hosts = rest.partition(" at ")
        line = cls(name.strip(), _listed(tools), _listed(hosts))
        unclear = any(" " in tool for tool in line.tools) or not line.tools or (said and not line.hosts)
        if _variable(line.variable) is None or unclear:
            raise ValueError("must read like GITHUB_TOKEN for webfetch at api.github.com")
        if line.hosts:
            _require_hosts(lambda: host_rules.read_limit(",".join(line.hosts)))
        return line


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _secret(text: str) -> str:
    SecretLine.parse(text)
    return text


def _asked_model(text: str) -> str:
    match text.split():
        case [tool, _] if tool in tools_for_models():
            return text
        case [tool, _, "at", url] if tool in tools_for_models():
            _plain_url(url)
            return text
    tools = ", ".join(tools_for_models())
    raise ValueError(f"must read like TOOL MODEL or TOOL MODEL at http://host:11434, where TOOL is one of {tools}")


def _pin(text: str) -> str:
    try:
        read_pin(text)
    except DefinitionError as wrong:
        raise ValueError(f"must be versions: {wrong}") from None
    return text


def _none_in_words(value: Any) -> Any:
    return None if value == "none" else value


Words = tuple[str, ...]
Names = tuple[Annotated[str, AfterValidator(_name)], ...]
Unlimited = BeforeValidator(_none_in_words)
StreamName = Annotated[str, AfterValidator(_stream_name)]


class WireFormats(Section):
    """How one model is told about tools, how its calls are read, how results are written."""

    definition_format: DefinitionFormat = Field(default="auto", description="How tool definitions are sent.")
    call_parser: CallParser = Field(default="auto", description="How calls are read from replies.")
    result_format: DefinitionFormat = Field(default="auto", description="How results are sent back.")
    coach: bool = Field(default=True, description="Whether a format that has surely worked better takes over.")


class Profile(Section):
    """A named model with its address and habits."""

    provider: str = Field(min_length=1, description="Provider of the model, such as openai, anthropic or ollama.")
    model: str = Field(min_length=1, description="The provider's name for the model.")
    url: Annotated[str | None, AfterValidator(_plain_url)] = Field(
        default=None, description="Address of the API, where it is not the provider's usual one."
    )
    api_key_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the environment variable that holds the API key."
    )
    temperature: float | None = Field(default=None, ge=0, le=2, description="Overrides the general temperature.")
    max_tokens: int | None = Field(default=None, ge=1, description="Overrides the general max_tokens.")
    result_chars: int | None = Field(
        default=None, ge=200, le=10_000_000, description="Overrides loop.result_chars while this model is asked."
    )
    tools: WireFormats = WireFormats()


class LoopSettings(Section):
    enabled: bool = Field(default=True, description="Whether the model may call tools at all.")
    iterations: int = Field(default=10, ge=1, le=1000, description="Model replies per turn before it must answer.")
    consecutive_failures: int = Field(default=3, ge=1, le=100, description="Failed steps in a row that end a turn.")
    parallel: int = Field(default=5, ge=1, le=256, description="Calls that run at the same time.")
    calls_per_step: int = Field(default=32, ge=1, le=1000, description="Calls accepted from one reply.")
    in_flight: Annotated[int | None, Unlimited] = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Calls of one agent at once, in all processes that run turns; not those in workers and devices.",
    )
    repeats: int = Field(default=3, ge=1, le=100, description="Same call with the same result before a turn is stuck.")
    calls: int = Field(
        default=64, ge=0, le=100_000, description="Calls that a turn may make, with those of its sub-agents."
    )
    tokens: Annotated[int | None, Unlimited] = Field(default=None, ge=1, description="Tokens that a turn may use.")
    cost_usd: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="US dollars that a turn may cost."
    )
    deadline_s: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="Seconds that a turn may take."
    )
    result_chars: int = Field(
        default=65_536, ge=200, le=10_000_000, description="Characters of one result that the model is shown."
    )
    envelope: bool = Field(
        default=True, description="Whether what grep, find, read, bash and the like give comes in a Tool Envelope."
    )
    window_tokens: int | None = Field(
        default=None, ge=256, description="Tokens that the model can read, if it does not say so itself."
    )
    compact_at: float = Field(
        default=0.75, gt=0, le=1, description="Share of the window from which on a thread is told by a summary."
    )


class ToolSettings(Section):
    timeout_s: float = Field(
        default=30.0, gt=0, le=86_400, allow_inf_nan=False, description="Seconds for a tool that names no time itself."
    )
    groups: Words = Field(
        default=(),
        description="More built-in tools by group, within the grant: desktop, all, or parts of them (see tools.md).",
    )
    include: Words = Field(default=(), description="Names of the only tools to offer; empty offers all of them.")
    exclude: Words = Field(default=(), description="Names of tools never to offer.")
    modules: tuple[Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+\Z")], ...] = Field(
        default=(), description='Your own tools as import paths, such as "package.module:object".'
    )
    skills_path: str | None = Field(
        default=None, min_length=1, description="Folder of skills; unset, it is the folder skills beside your settings."
    )
    versions: tuple[Annotated[str, AfterValidator(_pin)], ...] = Field(
        default=(), description='Versions of skills\' tools to use in place of the newest, such as "resize@1.2".'
    )
    enable_sandboxing: bool = Field(default=True, description="Whether commands and skills run in a sandbox.")
    sandbox_engine: SandboxEngine = Field(
        default=DEFAULT_ENGINE,
        description="The weakest sandbox that is good enough; a tool can ask for a stronger one.",
    )
    toolchains: bool = Field(
        default=True,
        description="Whether commands may read the toolchains in your home, such as ~/.pyenv and ~/.rustup.",
    )
    readable: Words = Field(
        default=(), description='More folders that commands may read where they are, such as "~/toolchains/arm".'
    )
    workspace_bytes: Annotated[int | None, Unlimited] = Field(
        default=None, ge=1, description="Bytes that a granted folder may hold before tools write no more."
    )
    disk_share: Annotated[float | None, Unlimited] = Field(
        default=0.1,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Share of the free disk space that one command may take.",
    )
    models: tuple[Annotated[str, AfterValidator(_asked_model)], ...] = Field(
        default=(),
        description='Models that tools may ask: "openrouter vendor/model", "ollama_local qwen3 at http://host:11434".',
    )
    browser_scripts: bool = Field(default=False, description="Whether the browser may run scripts of the model's own.")
    secrets: tuple[Annotated[str, AfterValidator(_secret)], ...] = Field(
        default=(),
        description='Variables that tools may have as {{secret:NAME}}: "GITHUB_TOKEN for webfetch at api.github.com".',
    )

    @property
    def engine(self) -> SandboxEngine:
        """The least that confines a command."""
        return self.sandbox_engine if self.enable_sandboxing else "none"


def _pin_text(value: Any) -> Any:
    """A pin may be written as a number."""
    return str(value) if type(value) is int else value


InputPin = Annotated[str, BeforeValidator(_pin_text), Field(pattern=r"^\d{1,3}( (up|down))?\Z")]
OutputPin = Annotated[str, BeforeValidator(_pin_text), Field(pattern=r"^\d{1,3}\Z")]
ProgramName = Annotated[str, Field(pattern=r"^[\w][\w.+-]*\Z")]


class OwnDeviceSettings(Section):
    """What the tools of the group device may use on the machine that they run on."""

    root: str = Field(
        default="/",
        min_length=1,
        description="Folder that holds the machine's proc and sys, such as /host in a container.",
    )
    inputs: tuple[InputPin, ...] = Field(
        default=(),
        description='GPIO pins that may be read, with the resistor that pulls them: 17, "22 up", "23 down".',
    )
    outputs: tuple[OutputPin, ...] = Field(default=(), description="GPIO pins that may be set, such as 27.")
    commands: tuple[ProgramName, ...] = Field(default=LOOKING_COMMANDS, description="Programs that safe_exec may run.")


class SearchSettings(Section):
    backend: Literal["none", "searxng", "brave", "tavily", "local"] = Field(
        default="none", description="What websearch asks; local needs no network."
    )
    url: Annotated[str | None, AfterValidator(_plain_url)] = Field(
        default=None, description="Address of the backend; searxng needs one."
    )
    key_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the variable that holds its key; brave and tavily need one."
    )
    folder: str | None = Field(default=None, min_length=1, description="The documents that local searches.")


class WorkspaceSettings(Section):
    """Where file tools and commands work, if not on this machine."""

    remote: Annotated[str | None, AfterValidator(_remote)] = Field(
        default=None, description="Folder on another machine in which tools work, such as ssh://user@host/srv/project."
    )
    identity: str | None = Field(
        default=None, min_length=1, description="File with the SSH key for it, if not one of your usual ones."
    )
    known_hosts: str | None = Field(
        default=None, min_length=1, description="File that lists the machine's key, if not your usual one."
    )
    python: str = Field(default="python3", min_length=1, description="The Python there that has toolwire.")


class GrantSettings(Section):
    tier: Literal["crawl", "walk", "run"] = Field(default="walk", description="The highest tier that may be used.")
    permissions: Names = Field(default=("file_read",), description="Permissions that tools may use.")
    roots: Words = Field(default=(".",), description="Folders that file tools may reach.")
    network: tuple[Annotated[str, AfterValidator(_host_rule)], ...] = Field(
        default=(), description="Hosts that tools may talk to."
    )
    confirmed: Names = Field(default=(), description='Tools that need no approval beyond the grant; "*" is all.')
    autonomy: Literal["readonly", "supervised", "full"] = Field(
        default="supervised", description="What is done without asking: only looking, harmless things, or everything."
    )
    rules: tuple[Annotated[str, AfterValidator(_rule)], ...] = Field(
        default=(), description='What is never done, asked about or simply done, such as "deny needs network".'
    )
    wary: bool = Field(
        default=True, description="Whether people are asked again once a turn has read untrusted content."
    )
    by_intent: bool = Field(
        default=False, description="Whether a turn gets only the tier that its question asks for; `tier` is the most."
    )


class AgentSettings(Section):
    """What one agent is granted in place of what `[grant]` says; as a sub-agent never more than its parent."""

    tier: Literal["crawl", "walk", "run"] | None = Field(default=None, description="In place of grant.tier.")
    permissions: Names | None = Field(default=None, description="In place of grant.permissions.")
    autonomy: Literal["readonly", "supervised", "full"] | None = Field(
        default=None, description="In place of grant.autonomy."
    )


class ServiceSettings(Section):
    """Workers in other processes, and which tools they run."""

    via: Literal["socket", "bus"] = Field(
        default="socket",
        description="How calls get there: over a Unix socket to one worker on this machine, or over the bus to any "
        "number of workers that share the store: `toolwire worker NAME`.",
    )
    socket: str = Field(
        default="",
        description="Unix socket on which the worker listens. A relative path starts in the folder `sockets` of the "
        "state folder.",
    )
    tools: Words = Field(
        default=(),
        description="Tools that run there, also in place of built-in ones; empty takes all that a worker at a socket "
        "has.",
    )
    token_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the variable that holds the token which callers must show at a socket."
    )
    environment: Words = Field(
        default=(), description="Variables of a worker behind the bus from which registered arguments may come."
    )


class BusServiceSettings(Section):
    """A tool service on the bus that reads and writes cards over HTTP."""

    token_env: Annotated[str, AfterValidator(_variable)] = Field(
        description="Name of the variable that holds the token which the service shows to `toolwire serve` for cards."
    )
    tools: Words = Field(
        default=(), description="Tools of the service: it sees the cards of their calls, and no others."
    )
    project: str = Field(default="", description="The project of the service; empty is that of `toolwire serve`.")


class RegistrySettings(Section):
    """Tools of services that get their calls over a bus, beside those that `toolwire registry add` keeps."""

    admins: Words = Field(
        default=(),
        description="Variables of those tokens of `serve` that may read and change registered tools over HTTP.",
    )
    files: Words = Field(default=(), description="YAML, TOML or JSON files that register tools of services on a bus.")
    versions: tuple[Annotated[str, AfterValidator(_pin)], ...] = Field(
        default=(), description='Versions of registered tools to use in place of the newest, such as "web_search@1.2".'
    )


class RecordSettings(Section):
    """Records that agents and people share, and who may reach them over HTTP."""

    readers: Words = Field(
        default=(), description="Variables of those tokens of `serve` that may read public records over HTTP."
    )
    writers: Words = Field(
        default=(), description="Variables of those tokens of `serve` that may read, write and delete records."
    )
    admins: Words = Field(
        default=(),
        description="Variables of those tokens of `serve` that may also write definitions of types, agents, webhooks "
        "and configurations with secrets.",
    )
    strict: bool = Field(
        default=False, description="Whether the type of a record has to be defined by a schema.def.v1 record."
    )
    key_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with the key that secret records are encrypted with; unset is `records.key` in your own "
        "state folder. Processes on several machines that share a store need the same key.",
    )
    webhook_hosts: Words = Field(
        default=(),
        description="Hosts that webhooks of subscriptions may reach even though they are not on the public internet.",
    )
    embedding: str = Field(
        default="static",
        min_length=1,
        description="What gives vectors to records, for search by meaning: `static` comes with the extra `records` and "
        "sends nothing, `none` searches by words alone, and `openai:text-embedding-3-small` or another model of a "
        "server with the OpenAI API is sent what records say (not those that are pii or secret).",
    )
    embedding_url: str | None = Field(
        default=None, min_length=1, description="Address of that server, such as http://host/v1, where it has its own."
    )


class StoreSettings(Section):
    home: str = Field(default=".toolwire", min_length=1, description="Folder that keeps turns, records and results.")
    kind: Literal["sqlite", "memory", "libsql", "postgres"] = Field(default="sqlite", description="What keeps them.")
    url: Annotated[str | None, AfterValidator(_store_url)] = Field(
        default=None,
        description="Address of the server for libsql (libsql://host) and postgres (postgresql://user@host/database).",
    )
    token_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the variable that holds the server's token or password."
    )
    bodies: Literal["folder", "database"] | None = Field(
        default=None,
        description="Where large results lie: in the folder, or in the database, where other machines find them. "
        "Unless it is set, the folder for sqlite and the database for a server.",
    )
    lease_s: float = Field(
        default=30.0,
        ge=1,
        allow_inf_nan=False,
        description="Seconds without a sign of life after which a process may lose its turns to another one.",
    )

    @property
    def lasts(self) -> bool:
        """Whether what is kept outlives the process."""
        return self.kind != "memory"

    @property
    def in_server(self) -> bool:
        """Whether a database server keeps it, which machines may share."""
        return self.kind in {"libsql", "postgres"}


class BusSettings(Section):
    """What carries messages between processes. It is never the record: that is the store."""

    kind: Literal["in-process", "nats"] = Field(
        default="in-process", description="What carries messages: this process alone, or NATS servers."
    )
    url: tuple[Annotated[str, AfterValidator(_broker_url)], ...] = Field(
        default=(), description="Addresses of the NATS servers; tls:// demands TLS."
    )
    user: str | None = Field(default=None, min_length=1, description="User name at the NATS server.")
    token_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the variable that holds the user's password, or a token without a user."
    )
    credentials: str | None = Field(
        default=None,
        min_length=1,
        description="File with an nkey seed or with NATS credentials (.creds). {project} in it stands for a project.",
    )
    ca: str | None = Field(
        default=None, min_length=1, description="File with the authorities that sign the servers' certificates."
    )
    cert: str | None = Field(default=None, min_length=1, description="File with the certificate that is shown to them.")
    key: str | None = Field(default=None, min_length=1, description="File with the private key of that certificate.")
    replicas: int = Field(
        default=1, ge=1, le=5, description="NATS servers that keep each message; 3 in a cluster of three."
    )
    stream_mb: int = Field(
        default=256, ge=1, le=1_000_000, description="Megabytes that each stream keeps; of more the oldest go."
    )
    command_stream: StreamName = Field(default="cg_cmd_v1r4", description="Name of the stream of commands.")
    event_stream: StreamName = Field(default="cg_evt_v1r4", description="Name of the stream of events.")


class EdgeSettings(Section):
    """Where agents on devices are reached, and how their calls are sent."""

    url: Annotated[str | None, AfterValidator(_device_broker_url)] = Field(
        default=None,
        description="Broker of the devices: mqtt://host, mqtts://host, or nats://host and tls://host where its server "
        "speaks MQTT with them. Unset, there are none.",
    )
    prefix: Annotated[str, AfterValidator(_topic_prefix)] = Field(
        default="evoclaw", description="How their topics begin: PREFIX/agents/NAME/commands."
    )
    user: str | None = Field(default=None, min_length=1, description="User name at the broker.")
    token_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the variable that holds the user's password."
    )
    ca: str | None = Field(
        default=None, min_length=1, description="File with the authorities that sign the broker's certificate."
    )
    cert: str | None = Field(default=None, min_length=1, description="File with the certificate that is shown to it.")
    key: str | None = Field(default=None, min_length=1, description="File with the private key of that certificate.")
    signing_key: str | None = Field(
        default=None, min_length=1, description="File with the private key that signs commands; devices know it."
    )
    devices: Words = Field(default=("*",), description="Names of the devices whose tools are offered; `*` fits any.")
    offer: Literal["tools", "agents"] = Field(
        default="tools",
        description="What agents see of devices: their tools, or only agents for tasks, each with those of its device.",
    )
    offline: Literal["fail", "queue"] = Field(
        default="fail", description="What a call does whose device is not there: fail at once, or wait for it."
    )
    queue_s: float = Field(
        default=300.0, gt=0, le=86_400, allow_inf_nan=False, description="Seconds for which it waits, with `queue`."
    )
    margin_s: float = Field(
        default=5.0, gt=0, le=600, allow_inf_nan=False,
        description="Seconds beyond a tool's own time that its device has to report.",
    )  # fmt: skip
    wait_s: float = Field(
        default=2.0, gt=0, le=60, allow_inf_nan=False,
        description="Seconds that a process waits at its start to learn which devices there are.",
    )  # fmt: skip


class DeviceSettings(Section):
    """What holds for the tools of one device, whatever it says about them itself."""

    tools: Words = Field(default=("*",), description="Names of its tools that are offered; `*` fits any.")
    tier: Literal["crawl", "walk", "run"] = Field(default="crawl", description="The lowest tier that they ask for.")
    permissions: Words = Field(default=(), description="Permissions that each of their calls needs.")
    confirm: bool = Field(default=False, description="Whether each of their calls needs approval.")
    untrusted: bool = Field(default=False, description="Whether their results are untrusted content.")
    key: Annotated[str | None, AfterValidator(_public_key)] = Field(
        default=None, description="Its public key, as `ed25519 BASE64`; then only what it has signed counts."
    )


class FleetSettings(Section):
    """Workers and runners that serve several projects."""

    projects: Words = Field(
        default=(),
        description='Projects that `toolwire worker` and `toolwire run` serve; "*" stands for all that are in the '
        "store, and empty for that of --project.",
    )
    folder: str = Field(
        default="projects",
        min_length=1,
        description="Folder with a folder for each of these projects: its tools work there, and its own toolwire.toml "
        "may be in it.",
    )
    at_once: int | None = Field(
        default=None,
        ge=1,
        description="Calls or turns of one project at the same time in one process; unset leaves a quarter of the "
        "process to others.",
    )
    window: int = Field(
        default=256,
        ge=1,
        description="Commands of one project and target that one process has on their way; more wait in the store.",
    )


class RetentionSettings(Section):
    turns_days: Annotated[float | None, Unlimited] = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Days for which ended turns are kept.",
    )
    turns_mb: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="Megabytes of turns and calls that it leaves."
    )
    audit_days: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="Days for which it leaves rows of the audit log."
    )
    audit_mb: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="Megabytes of audit rows that it leaves."
    )
    bodies_days: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="Days for which it leaves large results."
    )
    bodies_mb: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="Megabytes of large results that it leaves."
    )
    logs_days: Annotated[float | None, Unlimited] = Field(
        default=7.0,
        gt=0,
        allow_inf_nan=False,
        description="Days for which it leaves files in logs/; at most 7.",
    )
    logs_mb: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="Megabytes of files in logs/ that it leaves."
    )


class BudgetSettings(Section):
    calls: Annotated[int | None, Unlimited] = Field(default=None, ge=1, description="Calls of one day (UTC).")
    tokens: Annotated[int | None, Unlimited] = Field(default=None, ge=1, description="Tokens of one day (UTC).")
    cost_usd: Annotated[float | None, Unlimited] = Field(
        default=None, gt=0, allow_inf_nan=False, description="US dollars of one day (UTC)."
    )
    wall_s: Annotated[float | None, Unlimited] = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds in which turns run in one day (UTC); waiting for people costs none.",
    )


class ApprovalSettings(Section):
    expires_s: float = Field(
        default=86_400.0, gt=0, le=31_536_000, allow_inf_nan=False,
        description="Seconds after which an approval that was not answered counts as denied.",
    )  # fmt: skip
    questions: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Questions that a turn puts to people, and an agent leaves open, at most.",
    )
    people: Words = Field(
        default=(), description="Variables of those tokens of `serve` that may answer; empty is all of them."
    )
    webhook: Annotated[str | None, AfterValidator(_hook)] = Field(
        default=None, description="Address that is told about each new question."
    )
    webhook_arguments: bool = Field(default=False, description="Whether it is told the arguments too.")
    webhook_key_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the variable that holds the key with which it is signed."
    )
    webhook_hosts: Words = Field(
        default=(), description="Hosts that the webhook may reach even though they are not on the public internet."
    )


class ServeSettings(Section):
    """What `toolwire serve` listens on, what it asks, and who may use it."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address on which `toolwire serve` listens.")
    port: int = Field(default=8787, ge=0, le=65_535, description="Its port; 0 takes a free one.")
    upstream: str | None = Field(
        default=None, min_length=1, description="The model server that it asks, such as http://127.0.0.1:11434."
    )
    upstream_dialect: UpstreamDialect = Field(default="auto", description="What the upstream speaks.")
    model: str | None = Field(
        default=None, min_length=1, description="A model that it asks itself in place of an upstream: local:smollm2."
    )
    key_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        default=None, description="Name of the variable that holds the key for the upstream or the model."
    )
    token_env: tuple[Annotated[str, AfterValidator(_variable)], ...] = Field(
        default=(), description="Names of the variables that hold the tokens of clients; one has to be shown."
    )
    allow_hosts: Words = Field(default=(), description="Other names by which clients reach it.")
    json_logs: bool = Field(default=False, description="Whether it logs JSON lines.")
    metrics: bool | None = Field(
        default=None,
        description="Whether it gives metrics at /metrics, with a token unless it listens on this machine only. "
        "Unset, it does if it listens on this machine only.",
    )
    agents: bool = Field(
        default=False, description="Whether clients with a token may run this project's agent over HTTP (`/v1/turns`)."
    )


class TelemetrySettings(Section):
    """Where traces go; see observability.md. What is unset is left to the `OTEL_*` variables."""

    exporter: Literal["otlp", "console", "off"] | None = Field(
        default=None,
        description="Where traces go: otlp sends them to a collector, console writes them to the terminal (stderr). "
        "Unset, they are sent where an endpoint is set here or by OTEL_EXPORTER_OTLP_ENDPOINT.",
    )
    endpoint: Annotated[str | None, AfterValidator(_collector_url)] = Field(
        default=None, description="Address of the collector, such as http://127.0.0.1:4318."
    )
    protocol: Literal["http/protobuf"] = Field(default="http/protobuf", description="What the collector is sent.")
    sampling: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False, description="Share of the traces that is sent; unset is all."
    )
    service_name: str | None = Field(
        default=None, min_length=1, description="The service that traces name; unset, OTEL_SERVICE_NAME or toolwire."
    )
    contents: bool = Field(
        default=False, description="Whether traces have questions, arguments, results and answers in them."
    )
    metrics_port: int | None = Field(
        default=None, ge=0, le=65_535, description="Port on which `toolwire worker` and `toolwire run` give metrics."
    )
    metrics_host: str = Field(
        default="127.0.0.1", min_length=1, description="Address on which they do; there is no token there."
    )
    metrics_projects: int = Field(
        default=0, ge=0, le=1_000, description="How many projects metrics tell apart by a label; the others are one."
    )
    flush_s: float = Field(
        default=2.0, ge=0, le=60, allow_inf_nan=False, description="Seconds for what is still to be sent at the end."
    )


class OutputSettings(Section):
    color: Literal["auto", "always", "never"] = Field(default="auto", description="Colour on the terminal.")


class ModelChoice(NamedTuple):
    """The model to ask, with what its profile says about it. `profile` is "" where none was used."""

    model: str
    profile: str = ""
    url: str | None = None
    api_key_env: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    tools: WireFormats = WireFormats()


# Settings put their values into these: the values were checked as settings, and `replace` does not check them again.
_USUAL_GRANT = Grant()
_USUAL_LIMITS = Limits()
_NO_BUDGET = Budget()

_AS_GRANTED: Mapping[str, Callable[[Any], Any]] = {
    "tier": lambda name: Tier[name.upper()],
    "autonomy": lambda name: Autonomy[name.upper()],
    "permissions": frozenset,
}


def _less(one: Any, other: Any) -> Any:
    """What both allow of a tier, an autonomy or permissions."""
    return one & other if isinstance(one, frozenset) else min(one, other)


class Settings(Section):
    """All settings, checked, with the origin of each. Made by `load`; `Settings()` is the built-in layer alone."""

    model: str = Field(
        default="local:smollm2", pattern=r"^[A-Za-z][\w.-]*[:/]\S", description="The model to ask, as provider:model."
    )
    profile: str | None = Field(default=None, description="Name of the profile to use in place of a model.")
    temperature: float | None = Field(default=None, ge=0, le=2, description="Randomness of the model's choices.")
    max_tokens: int | None = Field(default=None, ge=1, description="Tokens that one reply may have.")
    profiles: dict[str, Profile] = Field(default_factory=dict)
    loop: LoopSettings = LoopSettings()
    tools: ToolSettings = ToolSettings()
    device: OwnDeviceSettings = OwnDeviceSettings()
    search: SearchSettings = SearchSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    grants: GrantSettings = Field(default=GrantSettings(), alias="grant")
    agents: dict[str, AgentSettings] = Field(default_factory=dict)
    services: dict[str, ServiceSettings] = Field(default_factory=dict)
    bus_services: dict[str, BusServiceSettings] = Field(default_factory=dict)
    registry: RegistrySettings = RegistrySettings()
    records: RecordSettings = RecordSettings()
    store: StoreSettings = StoreSettings()
    bus: BusSettings = BusSettings()
    fleet: FleetSettings = FleetSettings()
    edge: EdgeSettings = EdgeSettings()
    devices: dict[str, DeviceSettings] = Field(default_factory=dict)
    retention: RetentionSettings = RetentionSettings()
    budget: BudgetSettings = BudgetSettings()
    approval: ApprovalSettings = ApprovalSettings()
    serve: ServeSettings = ServeSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    output: OutputSettings = OutputSettings()

    _origins: ClassVar[Mapping[str, Origin]] = MappingProxyType({})
    _folder: ClassVar[Path | None] = None
    _ignored: ClassVar[tuple[Path, ...]] = ()

    def found_at(self, origins: Mapping[str, Origin], folder: Path | None, ignored: tuple[Path, ...]) -> Self:
        """These settings with where they come from, and the files that were not read."""
        vars(self).update(_origins=origins, _folder=folder, _ignored=ignored)
        return self

    def origin(self, key: str) -> Origin:
        """Where the value of a dotted key such as `loop.iterations` came from."""
        return self._origins.get(key, BUILT_IN)

    @property
    def folder(self) -> Path | None:
        """The folder of the outermost project file; None where there is none."""
        return self._folder

    def limits(self, profile: str = "") -> Limits:
        """The `[loop]` section as the limits of a turn, with what this or the chosen profile says about results."""
        said = {name: value for name, value in self.loop if name not in ("enabled", "calls")}
        limits = replace(_USUAL_LIMITS, **said, tools_enabled=self.loop.enabled)
        by_model = self.origin("model").strength > self.origin("profile").strength
        name = profile or ("" if by_model else self.profile)
        own = self.profiles[name].result_chars if name else None
        return limits if own is None else replace(limits, result_chars=own)

    def day(self) -> Budget | None:
        """The `[budget]` section as the budget of a day; None where it limits nothing."""
        budget = replace(_NO_BUDGET, **dict(self.budget))
        return None if budget == _NO_BUDGET else budget

    def grant(self, cwd: Path) -> Grant:
        """The `[grant]` section as a grant; roots that are still relative start at `cwd`.

        With a remote workspace the one root is its folder. Raises SettingsError where other roots are set as well.
        """
        remote = self.remote()
        return replace(
            _USUAL_GRANT,
            tier=Tier[self.grants.tier.upper()],
            permissions=frozenset(self.grants.permissions),
            roots=(remote.path,) if remote else tuple(str(cwd / root) for root in self.grants.roots),
            network=self.grants.network,
            confirmed=frozenset(self.grants.confirmed),
            autonomy=Autonomy[self.grants.autonomy.upper()],
            rules=tuple(Rule.parse(rule) for rule in self.grants.rules),
            wary=self.grants.wary,
            max_calls=self.loop.calls,
        )

    def remote(self) -> RemoteFolder | None:
        """The folder on another machine in which tools work, if any. Raises SettingsError where roots are set too."""
        if self.workspace.remote is None:
            return None
        if (roots := self.origin("grant.roots")).layer is not Layer.BUILT_IN:
            raise SettingsError(
                f"{roots.names('grant.roots')} names folders of this machine, and workspace.remote works on another; "
                "leave one out"
            )
        return RemoteFolder.parse(self.workspace.remote)

    def granted_to(self, agent: str, grant: Grant) -> Grant:
        """A grant with what `[agents.NAME]` says in its place.

        A variable or a flag for `[grant]` wins over that; a nearer file's `[grant]` can only take from it.
        """
        own = self.agents.get(agent)
        if own is None:
            return grant
        said = {name: _AS_GRANTED[name](value) for name, value in own if value is not None}
        kept: dict[str, Any] = {}
        for name, value in said.items():
            by_grant, by_agent = self.origin(f"grant.{name}"), self.origin(f"agents.{agent}.{name}")
            if by_grant.strength <= by_agent.strength:
                kept[name] = value
            elif by_grant.layer is Layer.PROJECT_FILE:
                kept[name] = _less(value, getattr(grant, name))
        return replace(grant, **kept)

    def secrets(self, environ: Mapping[str, str]) -> Secrets:
        """The `tools.secrets` with their values. A variable that is not set gives no secret."""
        known: dict[str, Secret] = {}
        for line in map(SecretLine.parse, self.tools.secrets):
            if value := environ.get(line.variable):
                other = known.get(line.variable, Secret(value))
                hosts = {tool: (*other.hosts.get(tool, ()), *line.hosts) for tool in line.tools}
                known[line.variable] = Secret(value, other.tools | set(line.tools), {**other.hosts, **hosts})
        return Secrets(known) if known else NO_SECRETS

    @property
    def ignored_files(self) -> tuple[Path, ...]:
        """Settings files in or above the working folder that belong to other users, and were not read."""
        return self._ignored

    def home(self, cwd: Path) -> Path:
        """The folder that keeps state: beside the outermost toolwire.toml, else in `cwd`, unless set otherwise."""
        unset = self.origin("store.home").layer is Layer.BUILT_IN
        return (self._folder if unset and self._folder else cwd) / self.store.home

    def chosen(self) -> ModelChoice:
        """The model to ask: the profile's, unless a stronger layer names a model. Raises SettingsError on a tie."""
        by_model, by_profile = self.origin("model"), self.origin("profile")
        if self.profile is None or by_model.strength > by_profile.strength:
            return ModelChoice(self.model, temperature=self.temperature, max_tokens=self.max_tokens)
        if by_model.strength == by_profile.strength:
            both = f"{by_model.names('model')} and {by_profile.names('profile')}"
            raise SettingsError(f"{both} are both set; keep one of them")
        return self.of_profile(self.profile)

    def of_profile(self, name: str) -> ModelChoice:
        """The model of a profile; what the profile leaves open is as the settings say for all models."""
        profile = self.profiles[name]
        return ModelChoice(
            f"{profile.provider}:{profile.model}",
            name,
            profile.url,
            profile.api_key_env,
            self.temperature if profile.temperature is None else profile.temperature,
            self.max_tokens if profile.max_tokens is None else profile.max_tokens,
            profile.tools,
        )
