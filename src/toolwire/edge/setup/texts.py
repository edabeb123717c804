"""The text of each file, from a plan. Nothing here reads or writes."""

import json
from collections.abc import Iterable
from pathlib import Path

from toolwire.edge.setup.plan import ORCHESTRATOR, BrokerPlace, EdgeFolder, EdgePlan
from toolwire.wire.mqtt.topics import FROM_AGENT, AgentChannel

SERVICE = "toolwire-edge.service"
HOME = "/var/lib/toolwire-edge"
USER = "toolwire-edge"
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - each client has to show a certificate
_GENERATED = "# Written by `toolwire edge init`, which writes it anew for each further device.\n"

_NATS_LIMITS = "limits { default_max_consumers: 100000, max_ha_assets: $default_max_consumers }"
"""Each device is a consumer of one stream of nats-server, which allows 1,000 of them since 2.15.

Earlier servers do not know this key and would refuse it, were it not used as a variable; `max_ha_assets` counts in
clusters only."""


def device_config(plan: EdgePlan, orchestrator_key: str) -> str:
    """The device's own file: who it is, whom it believes, and what it allows, whatever it is told."""
    tls = 'ca = "ca.pem"\ncert = "client.pem"\nkey = "client.key"\n' if plan.broker.tls else ""
    return f"""\
# This file rules what the agent on this device does. Orchestrators can ask for less, never for more.
[agent]
name = {_text(plan.name)}
prefix = {_text(plan.prefix)}
capabilities = {_list(plan.capabilities)}

[broker]
url = {_text(plan.broker.device_url)}
{tls}
[keys]
private = "device.pem"
orchestrators = [{_text(orchestrator_key)}]

[tools]
groups = {_list(plan.groups)}
[tools.paths]
skills = "skills"

[skills]
# Names of skills that orchestrators may push here; "*" is any.
accept = {_list(plan.skills)}

[device]
inputs = {_list(plan.inputs)}
outputs = {_list(plan.outputs)}

[grant]
tier = "run"
roots = ["workspace"]
# Calls of these tools run without approval on the device; see docs/edge.md.
confirmed = []
"""


def systemd_unit(plan: EdgePlan) -> str:
    """A service that keeps the agent running, with little to reach beside its own folder.

    Each call has a sandbox of its own in a user namespace, so those stay allowed, and /proc stays unmasked: the kernel
    lets nothing mount a /proc of its own beneath a masked one.
    """
    return f"""\
[Unit]
Description=toolwire edge agent {plan.name}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
ExecStart={plan.program} edge run --config {HOME}/edge.toml
WorkingDirectory={HOME}
User={USER}
StateDirectory={USER}
StateDirectoryMode=0700
UMask=0077
Restart=always
RestartSec=5
TimeoutStopSec=30
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelModules=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
DevicePolicy=closed
DeviceAllow=char-gpiochip rw
DeviceAllow=char-video4linux rw
TasksMax=512

[Install]
WantedBy=multi-user.target
"""


def install_script(plan: EdgePlan) -> str:
    """What the device's root runs once, in the folder that was copied there."""
    return f"""\
#!/bin/sh
# Installs the agent of this folder as a service: sudo sh install.sh
set -eu
cd "$(dirname "$0")"
id {USER} >/dev/null 2>&1 || useradd --system --home-dir {HOME} --shell /usr/sbin/nologin {USER}
for group in gpio video; do
  if getent group "$group" >/dev/null; then usermod -a -G "$group" {USER}; fi
done
if [ -e {HOME}/edge.toml ]; then echo "{HOME}/edge.toml is there already; remove it first" >&2; exit 1; fi
mkdir -p {HOME}
cp -R . {HOME}/
chown -R {USER}: {HOME}
chmod -R go= {HOME}
cp {SERVICE} /etc/systemd/system/{SERVICE}
[ -x {plan.program} ] || echo "{plan.program} is missing: install toolwire[edge,gpio] there" >&2
systemctl daemon-reload
systemctl enable --now {SERVICE}
systemctl status --no-pager {SERVICE}
"""


def mosquitto_config(folder: EdgeFolder, place: BrokerPlace, owner: str) -> str:
    """A Mosquitto that knows each device by its certificate: its name is its client id and its part of the topics.

    Started by root it becomes `owner`, whose files these are; as another user it could not read them.
    """
    data = folder.broker / "data"
    common = f"user {owner}\npersistence true\npersistence_location {data}/\n"
    common += "set_tcp_nodelay true\nmax_queued_messages 10000\n"
    if not place.tls:
        return f"{_GENERATED}{common}listener {place.port} {place.host}\nallow_anonymous true\n"
    served = f"certfile {folder.broker / 'server.pem'}\nkeyfile {folder.broker / 'server.key'}\n"
    return f"""\
{_GENERATED}{common}allow_anonymous false
per_listener_settings false
acl_file {folder.broker / "mosquitto.acl"}

# Devices. Their certificate says who they are, whatever client id they give.
listener {place.port} {_bound(place)}
cafile {folder.path / "ca.pem"}
{served}require_certificate true
use_identity_as_username true
use_username_as_clientid true

# Orchestrators, of an authority of their own. Many of their processes log in by one name, each with its own client id.
listener {place.port + 1} {_bound(place)}
cafile {folder.orchestrator / "ca.pem"}
{served}require_certificate true
use_identity_as_username true
"""


def mosquitto_acl(prefix: str) -> str:
    """Each device writes and reads its own topics and no other; %u is the name in its certificate."""
    written = "".join(f"pattern write {prefix}/agents/%u/{channel.value}\n" for channel in FROM_AGENT)
    read = "".join(f"topic read {prefix}/agents/+/{channel.value}\n" for channel in FROM_AGENT)
    return f"""\
{_GENERATED}pattern read {prefix}/agents/%u/{AgentChannel.COMMANDS.value}
{written}
user {ORCHESTRATOR}
topic write {prefix}/agents/+/{AgentChannel.COMMANDS.value}
# To itself: what it says there comes after all that the broker had kept of devices.
topic write {prefix}/agents/+/{AgentChannel.PROGRESS.value}
{read}"""


def nats_config(folder: EdgeFolder, place: BrokerPlace) -> str:
    """The same with nats-server: devices speak MQTT with it, orchestrators NATS, one port above."""
    data = json.dumps(str(folder.broker / "nats"))
    head = f'{_GENERATED}server_name: "toolwire-edge"\njetstream {{ store_dir: {data}, {_NATS_LIMITS} }}\n'
    bound = json.dumps(_bound(place))
    if not place.tls:
        return f"{head}host: {bound}\nport: {place.port + 1}\nmqtt {{ host: {bound}, port: {place.port} }}\n"
    return f"""\
{head}host: {bound}
port: {place.port + 1}
{_nats_tls(folder, folder.orchestrator / "ca.pem")}
mqtt {{
  host: {bound}
  port: {place.port}
  {_nats_tls(folder, folder.path / "ca.pem")}
}}
include "nats-users.conf"
"""


def nats_users(prefix: str, devices: Iterable[str]) -> str:
    """Who may log in to nats-server. A name in a certificate is written there as its subject."""
    root = prefix.replace("/", ".")
    agents = "".join(_nats_device(root, name) for name in devices)
    heard = json.dumps([*(f"{root}.agents.*.{channel.value}" for channel in FROM_AGENT), "_INBOX.>"])
    written = [f"{root}.agents.*.{channel.value}" for channel in (AgentChannel.COMMANDS, AgentChannel.PROGRESS)]
    said = json.dumps([*written, "$JS.API.>", "$JS.ACK.>"])
    return f"""\
{_GENERATED}authorization {{
  users: [
    {{ user: "CN={ORCHESTRATOR}", permissions: {{ publish: {said}, subscribe: {heard} }} }}
{agents}  ]
}}
"""


def orchestrator_settings(folder: EdgeFolder, plan: EdgePlan) -> str:
    """What the orchestrator's toolwire.toml needs to reach devices at all."""
    own = folder.orchestrator
    tls = {"ca": folder.path / "ca.pem", "cert": own / "client.pem", "key": own / "client.key"}
    lines = ["[edge]", f"url = {_text(plan.broker.orchestrator_url)}", f"prefix = {_text(plan.prefix)}"]
    lines += [f"{name} = {_text(str(file))}" for name, file in tls.items() if plan.broker.tls]
    return "\n".join([*lines, f"signing_key = {_text(str(own / 'signing.pem'))}", ""])


def device_settings(plan: EdgePlan, key: str) -> str:
    """What the orchestrator's toolwire.toml says about one device."""
    return f"[devices.{plan.name}]\nkey = {_text(key)}\n"


def _nats_device(root: str, name: str) -> str:
    said = json.dumps([f"{root}.agents.{name}.{channel.value}" for channel in FROM_AGENT])
    heard = json.dumps([f"{root}.agents.{name}.{AgentChannel.COMMANDS.value}", "$MQTT.sub.>"])
    permissions = f"permissions: {{ publish: {said}, subscribe: {heard} }}"
    return f'    {{ user: "CN={name}", allowed_connection_types: ["MQTT"], {permissions} }}\n'


def _nats_tls(folder: EdgeFolder, ca: Path) -> str:
    files = {"cert_file": folder.broker / "server.pem", "key_file": folder.broker / "server.key", "ca_file": ca}
    named = ", ".join(f"{name}: {json.dumps(str(file))}" for name, file in files.items())
    return f"tls {{ {named}, verify_and_map: true }}"


def _bound(place: BrokerPlace) -> str:
    """The address to listen at. A name may lead to any of the machine's addresses, so all of them are served."""
    return place.host if place.host.replace(".", "").isdecimal() or ":" in place.host else _EVERY_ADDRESS


def _text(text: str) -> str:
    return json.dumps(text)  # a JSON string of printable text is one of TOML too


def _list(words: Iterable[str]) -> str:
    return json.dumps(list(words))
