"""The bus of a project, opened as its settings say."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from toolwire.assemble.project import ProjectFolder, secret_in
from toolwire.bus.contract import Bus
from toolwire.bus.in_process import InProcessBus
from toolwire.errors import BrokerNotReady, BusUnavailable, SettingsError
from toolwire.lazy import lazy_module
from toolwire.settings import BusSettings

if TYPE_CHECKING:
    from toolwire.bus import nats_connection, nats_jetstream, nkeys
else:
    # Loaded where the settings name a broker: a client library and one for cryptography come with them.
    nats_connection = lazy_module("toolwire.bus.nats_connection")
    nats_jetstream = lazy_module("toolwire.bus.nats_jetstream")
    nkeys = lazy_module("toolwire.bus.nkeys")

CONNECT_S = 5.0
_LARGEST_FILE = 64 * 1024


@asynccontextmanager
async def open_bus(
    project: ProjectFolder, *, name: str = "toolwire", connect_s: float = CONNECT_S
) -> AsyncIterator[Bus]:
    """The bus of the settings, connected; `name` is what a broker shows of this process.

    Raises SettingsError where the settings cannot be right, and BusUnavailable where no server answers in this time.
    """
    chosen = project.settings.bus
    if chosen.kind == "in-process":
        async with InProcessBus() as own:
            yield own
        return
    async with _nats_bus(project, name, connect_s) as bus:
        yield bus


async def check_nats(project: ProjectFolder) -> "nats_jetstream.BrokerState":
    """Log in to the broker of the settings, and see what is there. Raises SettingsError and BusError."""
    if project.settings.bus.kind != "nats":
        raise SettingsError("bus.kind is not nats, so there is no server to check; set it, and bus.url")
    async with _nats_bus(project, "toolwire nats check", CONNECT_S) as bus:
        return await bus.broker_state()


@asynccontextmanager
async def _nats_bus(project: ProjectFolder, name: str, connect_s: float) -> AsyncIterator["nats_jetstream.NatsBus"]:
    chosen = project.settings.bus
    servers = nats_servers(project)
    streams = nats_streams(project)
    async with AsyncExitStack() as closing:
        try:
            opening = nats_jetstream.nats_bus(servers, streams=streams, name=name, connect_s=connect_s)
            bus = await closing.enter_async_context(opening)
        except BrokerNotReady:
            raise
        except BusUnavailable as wrong:
            raise BusUnavailable(f"{wrong}. {_advice(chosen)}") from None
        yield bus


def nats_streams(project: ProjectFolder) -> "tuple[nats_jetstream.StreamPlan, ...]":
    """The streams of the settings, in which messages are kept."""
    chosen = project.settings.bus
    return nats_jetstream.streams_named(
        chosen.command_stream, chosen.event_stream, chosen.replicas, chosen.stream_mb << 20
    )


def nats_servers(project: ProjectFolder) -> "nats_connection.NatsServers":
    """Where the broker of the settings is, and how to log in there. Raises SettingsError."""
    chosen = project.settings.bus
    if not chosen.url:
        raise SettingsError("bus.kind = nats needs the addresses of the servers: set bus.url")
    _require_one_login(chosen)
    secret = _secret(project, chosen)
    try:
        return nats_connection.NatsServers(
            chosen.url,
            user=chosen.user or "",
            password=secret if chosen.user else "",
            token="" if chosen.user else secret,
            key=user_key(Path(chosen.credentials.replace("{project}", project.name)), "bus.credentials")
            if chosen.credentials
            else None,
            tls=_tls(chosen),
        )
    except ImportError as missing:
        raise SettingsError(f"NATS needs an extra: pip install 'toolwire[nats]' ({missing})") from None


def _require_one_login(chosen: BusSettings) -> None:
    if chosen.credentials and (chosen.user or chosen.token_env):
        raise SettingsError("bus.credentials and bus.user or bus.token_env are both set; keep one of them")
    if chosen.user and not chosen.token_env:
        raise SettingsError("bus.user needs a password: name the variable that holds it in bus.token_env")
    if bool(chosen.cert) != bool(chosen.key):
        lacking = "key" if chosen.cert else "cert"
        raise SettingsError(f"bus.cert and bus.key belong together: set bus.{lacking}")


def _secret(project: ProjectFolder, chosen: BusSettings) -> str:
    return secret_in(project.environ, chosen.token_env, "bus.token_env") if chosen.token_env else ""


def user_key(file: Path, said_by: str) -> "nkeys.UserKey":
    """The key in a file with a seed or credentials. Raises SettingsError that names the setting or flag."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST_FILE).decode("ascii", "replace")
    except OSError as wrong:
        raise SettingsError(f"{said_by}: {file} cannot be read: {wrong.strerror}") from None
    try:
        return nkeys.UserKey.parse(text)
    except SettingsError as wrong:
        raise SettingsError(f"{said_by}: {file} {wrong}") from None


def _tls(chosen: BusSettings) -> ssl.SSLContext | None:
    if not (chosen.ca or chosen.cert):
        return None
    for key, file in (("ca", chosen.ca), ("cert", chosen.cert), ("key", chosen.key)):
        if file and not Path(file).is_file():
            raise SettingsError(f"bus.{key}: there is no file {file}")
    try:
        context = ssl.create_default_context(cafile=chosen.ca)
    except (OSError, ssl.SSLError) as wrong:
        raise SettingsError(f"bus.ca: {chosen.ca} holds no certificates ({_why(wrong)})") from None
    if chosen.cert:
        try:
            context.load_cert_chain(chosen.cert, chosen.key, password=_no_password)
        except (OSError, ValueError, ssl.SSLError) as wrong:
            raise SettingsError(
                f"bus.cert and bus.key: {chosen.cert} and {chosen.key} do not work together ({_why(wrong)})"
            ) from None
    return context


def _no_password() -> str:
    """A key with a password would be asked for at the terminal."""
    raise ValueError("the key has a password; use one without")


def _why(wrong: Exception) -> str:
    return getattr(wrong, "reason", None) or getattr(wrong, "strerror", None) or str(wrong)


def _advice(chosen: BusSettings) -> str:
    login = "bus.credentials" if chosen.credentials else "bus.user and bus.token_env"
    return f"Start one there, or correct bus.url, {login} or bus.ca"
