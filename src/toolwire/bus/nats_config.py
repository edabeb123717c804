"""Configurations of NATS servers, as text. Pure."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from toolwire.bus.nats_permissions import ALL_PROJECTS, NatsUser, permissions_of

ROUTE_PORT_OFFSET = 2_000
HEALTH_PORT_OFFSET = 4_000
"""From the port for clients, as in 4222, 6222 and 8222."""

_MB = 1024 * 1024
_STREAMS = 2

SYNC_NOTE = """\
  # Write to disk before a message is confirmed. By default a server writes every two minutes: cut off from power it has
  # then lost what it confirmed, up to whole streams. Nothing is lost for good, since calls are sent again from the
  # store, but they wait for that. Costs one fsync for each message; leave it out where a delay does not matter.
"""


class NatsNode(Struct, frozen=True):
    """One server: where it listens, the folder that holds its messages, and the files for TLS, "" without it."""

    name: str
    host: str
    port: int
    store: str
    cert: str = ""
    key: str = ""
    ca: str = ""

    @property
    def route_port(self) -> int:
        return self.port + ROUTE_PORT_OFFSET

    @property
    def health_port(self) -> int:
        return self.port + HEALTH_PORT_OFFSET

    @property
    def url(self) -> str:
        return f"{'tls' if self.cert else 'nats'}://{self.host}:{self.port}"


class NatsCluster(Struct, frozen=True):
    """Servers that belong together, who may log in, by public key, and how much each project may keep."""

    nodes: tuple[NatsNode, ...]
    users: Mapping[str, NatsUser]
    commands: str
    events: str
    stream_mb: int

    @property
    def replicas(self) -> int:
        return min(len(self.nodes), 3)

    @property
    def projects(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(user.project for user in self.users.values()))


def server_config(cluster: NatsCluster, node: NatsNode) -> str:
    """The configuration file of one of the servers."""
    kept_mb = len(cluster.projects) * _STREAMS * cluster.stream_mb
    parts = [
        f"server_name: {_text(node.name)}",
        f"listen: {_text(f'{node.host}:{node.port}')}",
        "# Health: GET /healthz. It answers without a login, so only this machine may ask.",
        f"http: {_text(f'127.0.0.1:{node.health_port}')}",
        "max_payload: 1MB",
        "jetstream {",
        f"  store_dir: {_text(node.store)}",
        f"  max_file_store: {kept_mb + max(kept_mb // 10, 64)}MB",
        "  max_memory_store: 64MB",
        f"{SYNC_NOTE}  sync_interval: always",
        "}",
        *_tls(node),
        *_routes(cluster, node),
        *_accounts(cluster),
    ]
    return "\n".join(parts) + "\n"


def _tls(node: NatsNode, *, verify: bool = False) -> Iterable[str]:
    if node.cert:
        named = {"cert_file": node.cert, "key_file": node.key, **({"ca_file": node.ca} if node.ca else {})}
        yield "tls {"
        yield from (f"  {key}: {_text(file)}" for key, file in named.items())
        yield '  min_version: "1.2"'
        if verify:
            yield "  verify: true"
        yield "}"


def _routes(cluster: NatsCluster, node: NatsNode) -> Iterable[str]:
    if len(cluster.nodes) == 1:
        return
    yield "cluster {"
    yield "  name: toolwire"
    yield f"  listen: {_text(f'{node.host}:{node.route_port}')}"
    others = [f"nats-route://{other.host}:{other.route_port}" for other in cluster.nodes if other is not node]
    yield f"  routes: {json.dumps(others)}"
    yield from (f"  {line}" for line in _tls(node, verify=True))
    yield "}"


def _accounts(cluster: NatsCluster) -> Iterable[str]:
    """One account for each project: its subjects and streams are not seen from another one."""
    kept = _STREAMS * cluster.stream_mb * cluster.replicas
    yield "accounts {"
    for project in cluster.projects:
        name = "all-projects" if project == ALL_PROJECTS else f"project-{project}"
        yield f"  {_text(name)} {{"
        yield f"    jetstream {{ max_file: {kept}MB, max_memory: 0, max_streams: {_STREAMS} }}"
        yield "    users: ["
        yield from (_user(cluster, key, user) for key, user in cluster.users.items() if user.project == project)
        yield "    ]"
        yield "  }"
    yield "}"


def _user(cluster: NatsCluster, key: str, user: NatsUser) -> str:
    allowed = permissions_of(user, key, cluster.commands, cluster.events)
    said: dict[str, Any] = {"publish": {"allow": allowed.publish}, "subscribe": {"allow": allowed.subscribe}}
    if allowed.answers:
        said["allow_responses"] = {"max": 1, "expires": "1m"}
    return f"      # {user.name}\n      {{ nkey: {key}, permissions: {json.dumps(said)} }}"


def _text(text: str) -> str:
    """Text in quotes. Raises ValueError for what such a file cannot hold."""
    if any(ord(one) < 32 for one in text):
        raise ValueError(f"{text!r} has control characters, which a NATS configuration cannot hold")
    return json.dumps(text, ensure_ascii=False)
