"""Writing the files. Keys that are there stay as they are, and a device that is there is refused."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from toolwire.bus.certificates import (
    Certificate,
    certified_hosts,
    is_certified,
    new_authority,
    sign_client,
    sign_server,
)
from toolwire.bus.key_files import PRIVATE, PUBLIC, write_whole
from toolwire.edge.keys import PrivateKey
from toolwire.edge.setup import texts
from toolwire.edge.setup.plan import DEFAULT_BROKER, ORCHESTRATOR, EdgeFolder, EdgePlan
from toolwire.errors import SettingsError
from toolwire.wire.mqtt.topics import DEFAULT_PREFIX

MakeFiles = Callable[[EdgeFolder, PrivateKey], Mapping[str, bytes]]
"""Makes the files of a device, by their names, from the folder and the key that signs commands."""


class WrittenDevice(Struct, frozen=True):
    """What was written. `settings` is what the orchestrator's settings still need."""

    folder: EdgeFolder
    device: Path
    key: str
    settings: str
    is_first: bool


def write_edge_files(root: Path, plan: EdgePlan) -> WrittenDevice:
    """Write the files of a device, and those of broker and orchestrator where they are missing. Raises SettingsError.

    The device's folder appears whole or not at all.
    """
    key = PrivateKey.generate()

    def make_files(folder: EdgeFolder, signing: PrivateKey) -> dict[str, bytes]:
        config = texts.device_config(plan, str(signing.public)).encode()
        return {**_device_files(folder, plan, signing), "device.pem": key.pem, "edge.toml": config}

    return add_device(root, plan, str(key.public), make_files)


def add_device(root: Path, plan: EdgePlan, key: str, make_files: MakeFiles) -> WrittenDevice:
    """Add a device that has this key, with the files that are made for it. Raises SettingsError."""
    folder = EdgeFolder(root.absolute())
    device = folder.device(plan.name)
    require_new(device, plan.name)
    is_first = not folder.device_names()
    try:
        for each in (folder.path, folder.broker, folder.broker / "data", folder.orchestrator, folder.devices):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_folder(device, make_files(folder, _signing_key(folder.orchestrator / "signing.pem")))
        _write_broker(folder, plan)
    except OSError as wrong:
        raise SettingsError(f"{wrong.filename or folder.path} cannot be written: {wrong.strerror}") from None
    settings = texts.device_settings(plan, key)
    if is_first:
        settings = f"{texts.orchestrator_settings(folder, plan)}\n{settings}"
    return WrittenDevice(folder, device, key, settings, is_first)


def require_new(device: Path, name: str) -> None:
    """Raise SettingsError for a device that is there."""
    if device.exists():
        raise SettingsError(f"{device} is there already and is not overwritten; remove it to set {name} up anew")


class FleetSetup(Struct, frozen=True):
    """What all devices of a folder have in common: one broker serves them."""

    url: str = DEFAULT_BROKER
    prefix: str = DEFAULT_PREFIX
    nats: bool = False


def choose_setup(root: Path, url: str | None, prefix: str | None, nats: bool | None) -> FleetSetup:
    """What was chosen for the first device, else what is given now. Raises SettingsError where the two differ."""
    file = EdgeFolder(root.absolute()).setup
    try:
        kept = FleetSetup(**json.loads(file.read_bytes()))
    except FileNotFoundError:
        usual = FleetSetup()
        return FleetSetup(url or usual.url, prefix or usual.prefix, bool(nats))
    except (OSError, ValueError, TypeError) as wrong:
        raise SettingsError(f"{file} cannot be read: {wrong}") from None
    for flag, given, before in (("--broker", url, kept.url), ("--prefix", prefix, kept.prefix)):
        if given is not None and given != before:
            raise SettingsError(
                f"{flag} {given} is another than the one of the devices in {root}, {before}; leave it out, or choose "
                "another --folder"
            )
    if nats is not None and nats != kept.nats:
        raise SettingsError(f"the broker of {root} is {'nats-server' if kept.nats else 'Mosquitto'}; leave --nats out")
    return kept


def service_files(plan: EdgePlan) -> dict[str, bytes]:
    """What makes a service of the agent."""
    return {texts.SERVICE: texts.systemd_unit(plan).encode(), "install.sh": texts.install_script(plan).encode()}


def device_authority(folder: EdgeFolder, plan: EdgePlan) -> Certificate:
    """Who signs for devices. Certificates of broker and orchestrator are made on the way. Raises SettingsError."""
    authority = _authority(folder.path, "toolwire edge devices")
    _server(folder, plan, authority)
    _orchestrator_client(folder)
    return authority


def _device_files(folder: EdgeFolder, plan: EdgePlan, signing: PrivateKey) -> dict[str, bytes]:
    """The device's certificate and service."""
    files = {"orchestrator.pub": f"{signing.public}\n".encode(), **service_files(plan)}
    if plan.broker.tls:
        authority = device_authority(folder, plan)
        client = sign_client(authority, plan.name)
        files |= {"ca.pem": authority.cert, "client.pem": client.cert, "client.key": client.key}
    return files


def _write_broker(folder: EdgeFolder, plan: EdgePlan) -> None:
    written = {
        "mosquitto.conf": texts.mosquitto_config(folder, plan.broker, folder.path.owner()),
        "mosquitto.acl": texts.mosquitto_acl(plan.prefix),
        "nats.conf": texts.nats_config(folder, plan.broker),
        "nats-users.conf": texts.nats_users(plan.prefix, folder.device_names()),
    }
    for name, text in written.items():
        write_whole(folder.broker / name, text.encode(), PRIVATE)
    common = FleetSetup(plan.broker.device_url, plan.prefix, plan.broker.is_nats)
    write_whole(folder.setup, json.dumps(asdict(common)).encode(), PRIVATE)


def _server(folder: EdgeFolder, plan: EdgePlan, authority: Certificate) -> None:
    """The broker's certificate, kept where it is there. Raises SettingsError where that is for another host."""
    cert, key = folder.broker / "server.pem", folder.broker / "server.key"
    host = plan.broker.host
    if not cert.exists():
        made = sign_server(authority, [host, *(("localhost",) if host == "127.0.0.1" else ())])
        write_whole(key, made.key, PRIVATE)
        write_whole(cert, made.cert, PUBLIC)
    elif not is_certified(host, hosts := certified_hosts(cert.read_bytes())):
        raise SettingsError(
            f"the broker of {folder.path} is at {', '.join(hosts)}, not at {host}; "
            f"give --broker with that host, or remove {cert} so that a new certificate is made"
        )


def _orchestrator_client(folder: EdgeFolder) -> None:
    cert, key = folder.orchestrator / "client.pem", folder.orchestrator / "client.key"
    if not cert.exists():
        made = sign_client(_authority(folder.orchestrator, "toolwire edge orchestrators"), ORCHESTRATOR)
        write_whole(key, made.key, PRIVATE)
        write_whole(cert, made.cert, PUBLIC)


def _authority(folder: Path, name: str) -> Certificate:
    """Who signs certificates, made where there is none. Raises SettingsError where only its certificate is there."""
    cert, key = folder / "ca.pem", folder / "ca.key"
    if cert.exists() and not key.exists():
        raise SettingsError(f"{key} is missing, which has to sign certificates; put it back")
    if cert.exists():
        return Certificate(cert.read_bytes(), key.read_bytes())
    made = new_authority(name)
    write_whole(key, made.key, PRIVATE)
    write_whole(cert, made.cert, PUBLIC)
    return made


def _signing_key(file: Path) -> PrivateKey:
    if not file.exists():
        write_whole(file, PrivateKey.generate().pem, PRIVATE)
    try:
        return PrivateKey.from_pem(file.read_bytes())
    except ValueError as wrong:
        raise SettingsError(f"{file} holds no key that signs commands: {wrong}; put the right one there") from None


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the folder of a device, whole or not at all. Raises OSError."""
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    draft.mkdir(mode=0o700)
    try:
        for name in ("workspace", "skills"):
            (draft / name).mkdir(mode=0o700)
        for name, content in files.items():
            write_whole(draft / name, content, PRIVATE)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
