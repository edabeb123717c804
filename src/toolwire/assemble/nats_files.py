"""The files of NATS servers for projects: configurations, certificates and a key for each user, in one folder.

Keys and certificates that lie there already are kept, so a project can be added later. Without a file its user is gone.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from toolwire.bus.certificates import Certificate, certified_hosts, is_certified, new_authority, sign_server
from toolwire.bus.key_files import PRIVATE, PUBLIC, write_whole
from toolwire.bus.nats_config import NatsCluster, NatsNode, server_config
from toolwire.bus.nats_permissions import NatsRole, NatsUser
from toolwire.bus.nkeys import UserKey
from toolwire.errors import SettingsError

CA_CERT, CA_KEY = "ca.pem", "ca.key"


class NatsPlan(Struct, frozen=True):
    """What is to be written: addresses of servers, who may log in, names and size of streams."""

    addresses: tuple[tuple[str, int], ...]
    users: tuple[NatsUser, ...]
    commands: str
    events: str
    stream_mb: int
    tls: bool = True


class NatsFiles(Struct, frozen=True):
    """What was written: the cluster, and where its files are."""

    cluster: NatsCluster
    configs: tuple[Path, ...]
    keys: Mapping[NatsUser, Path]
    public_keys: Mapping[NatsUser, str]
    ca: Path | None


def users_of(projects: Iterable[str], targets: Iterable[str]) -> tuple[NatsUser, ...]:
    """For each project an orchestrator, a worker, and a tool service for each target."""
    services = tuple(targets)
    return tuple(
        user
        for project in dict.fromkeys(projects)
        for user in (
            NatsUser(project, NatsRole.ORCHESTRATOR),
            NatsUser(project, NatsRole.WORKER),
            *(NatsUser(project, NatsRole.SERVICE, target) for target in dict.fromkeys(services)),
        )
    )


def write_nats_files(folder: Path, plan: NatsPlan, data: Path | None = None) -> NatsFiles:
    """Write all files; `data` is where servers keep messages. Raises SettingsError where that cannot be done."""
    folder = folder.absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = ["nats"] if len(plan.addresses) == 1 else [f"nats-{place + 1}" for place in range(len(plan.addresses))]
        nodes = tuple(
            _node(folder, data or folder, name, host, port, tls=plan.tls)
            for name, (host, port) in zip(names, plan.addresses, strict=True)
        )
        keys = {user: _user_key(folder / f"{user.name}.nk") for user in plan.users}
        cluster = NatsCluster(
            nodes, {key.public: user for user, key in keys.items()}, plan.commands, plan.events, plan.stream_mb
        )
        configs = [folder / f"{node.name}.conf" for node in nodes]
        for node, config in zip(nodes, configs, strict=True):
            write_whole(config, server_config(cluster, node).encode(), PRIVATE)
    except OSError as wrong:
        raise SettingsError(f"{wrong.filename or folder} cannot be written: {wrong.strerror}") from None
    except ValueError as wrong:
        raise SettingsError(str(wrong)) from None
    files = {user: folder / f"{user.name}.nk" for user in plan.users}
    public = {user: key.public for user, key in keys.items()}
    return NatsFiles(cluster, tuple(configs), files, public, folder / CA_CERT if plan.tls else None)


def _node(folder: Path, data: Path, name: str, host: str, port: int, *, tls: bool) -> NatsNode:
    store = str(data / f"{name}.data")
    if not tls:
        return NatsNode(name, host, port, store)
    cert, key, ca = (folder / file for file in (f"{name}.pem", f"{name}.key", CA_CERT))
    if not (cert.exists() and key.exists() and ca.exists()):
        made = sign_server(_authority(folder, name), [host])
        write_whole(key, made.key, PRIVATE)
        write_whole(cert, made.cert, PUBLIC)
    else:
        _require_certified(cert, key, host)
    return NatsNode(name, host, port, store, str(cert), str(key), str(ca))


def _require_certified(cert: Path, key: Path, host: str) -> None:
    """Raise SettingsError where a certificate that is there is for other hosts: every client would refuse it."""
    try:
        hosts = certified_hosts(cert.read_bytes())
    except ValueError:
        raise SettingsError(f"{cert} holds no certificate; remove it and {key.name}, and new ones are made") from None
    if not is_certified(host, hosts):
        raise SettingsError(
            f"{cert} is for {', '.join(hosts) or 'no host'}, not for {host}; "
            f"remove it and {key.name}, and new ones are made, or give each --node its earlier place"
        )


def _authority(folder: Path, name: str) -> Certificate:
    """Who signs certificates, made where there is none. Raises SettingsError where only its certificate is there."""
    cert, key = folder / CA_CERT, folder / CA_KEY
    if cert.exists() and not key.exists():
        raise SettingsError(
            f"{key} is missing, which has to sign {name}.pem; put it there, or {name}.pem and {name}.key"
        )
    if cert.exists():
        return Certificate(cert.read_bytes(), key.read_bytes())
    made = new_authority("toolwire NATS")
    write_whole(key, made.key, PRIVATE)
    write_whole(cert, made.cert, PUBLIC)
    return made


def _user_key(file: Path) -> UserKey:
    if file.exists():
        try:
            return UserKey.parse(file.read_text("ascii"))
        except (SettingsError, UnicodeDecodeError):
            raise SettingsError(f"{file} holds no key of a NATS user; remove it, and a new one is made") from None
    key = UserKey.new()
    write_whole(file, f"{key.seed}\n".encode(), PRIVATE)
    return key
