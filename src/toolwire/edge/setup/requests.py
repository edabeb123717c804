"""A device that makes its own keys, so that none of them travels.

It asks for a certificate (`edge init --request`), the orchestrator's machine signs it (`edge sign`), and the device
takes in what it is given (`edge accept`). Neither file holds a secret. Both sides show the ids of the keys, which have
to be the same: nothing else proves that no one has changed a file on its way.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.bus.certificates import client_name, new_request, sign_request
from toolwire.bus.key_files import PRIVATE, write_whole
from toolwire.edge.keys import PrivateKey, PublicKey
from toolwire.edge.setup import texts
from toolwire.edge.setup.files import (
    FleetSetup,
    WrittenDevice,
    add_device,
    device_authority,
    require_new,
    service_files,
    write_folder,
)
from toolwire.edge.setup.plan import EdgeFolder, EdgePlan, check_name, check_prefix, read_broker
from toolwire.errors import SettingsError

REQUEST, ANSWER = "request.json", "answer.json"
MOST_BYTES = 64 * 1024
_PLAN = "plan.json"
_KEPT = ("program", "capabilities", "groups", "inputs", "outputs", "skills")
_REQUEST_KIND, _ANSWER_KIND = "toolwire edge request 1", "toolwire edge answer 1"


class DeviceRequest(Struct, frozen=True):
    """What a device asks for: its name, the request for its certificate, and the key that signs what it says."""

    name: str
    csr: str
    key: PublicKey


class WrittenRequest(Struct, frozen=True):
    """The folder of a device that has asked."""

    device: Path
    key_id: str

    @property
    def file(self) -> Path:
        return self.device / REQUEST


def write_request(root: Path, plan: EdgePlan) -> WrittenRequest:
    """Make the keys of a device on its own machine, and what it asks for. Raises SettingsError."""
    device = EdgeFolder(root.absolute()).device(plan.name)
    require_new(device, plan.name)
    key, asked = PrivateKey.generate(), new_request(plan.name)
    request = {
        "kind": _REQUEST_KIND, "name": plan.name, "csr": asked.request.decode(), "key": str(key.public),
        "signature": base64.b64encode(key.sign(asked.request)).decode(),
    }  # fmt: skip
    kept = {name: getattr(plan, name) for name in _KEPT}
    files = {
        "device.pem": key.pem, "client.key": asked.key, REQUEST: _json(request), _PLAN: _json(kept),
        **service_files(plan),
    }  # fmt: skip
    try:
        device.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_folder(device, files)
    except OSError as wrong:
        raise SettingsError(f"{wrong.filename or device} cannot be written: {wrong.strerror}") from None
    return WrittenRequest(device, key.key_id)


def read_request(data: bytes, source: str) -> DeviceRequest:
    """What a device asks for, if both of its keys have signed it. Raises SettingsError."""
    said = _read(data, source, _REQUEST_KIND, ("name", "csr", "key", "signature"))
    try:
        key = PublicKey.parse(said["key"])
        signature = base64.b64decode(said["signature"], validate=True)
    except (ValueError, binascii.Error) as wrong:
        raise SettingsError(f"{source}: {wrong}") from None
    if not key.verifies(said["csr"].encode(), signature):
        raise SettingsError(f"{source}: its signature is not of the key of {said['name'][:80]!r}; ask for it again")
    return DeviceRequest(check_name(said["name"]), said["csr"], key)


def sign_device(root: Path, common: FleetSetup, request: DeviceRequest) -> WrittenDevice:
    """Sign what a device asks for, and add it to those of a folder. Raises SettingsError."""
    plan = EdgePlan(request.name, read_broker(common.url, is_nats=common.nats), "", check_prefix(common.prefix))
    if not plan.broker.tls:
        raise SettingsError("certificates are for a broker with TLS; give --broker mqtts://HOST:PORT")

    def make_files(folder: EdgeFolder, signing: PrivateKey) -> Mapping[str, bytes]:
        authority = device_authority(folder, plan)
        try:
            cert = sign_request(authority, request.csr.encode(), request.name)
        except ValueError as wrong:
            raise SettingsError(f"the request of {request.name} cannot be signed: {wrong}") from None
        answer = {
            "kind": _ANSWER_KIND, "name": request.name, "url": plan.broker.device_url, "prefix": plan.prefix,
            "orchestrator": str(signing.public), "ca": authority.cert.decode(), "cert": cert.decode(),
        }  # fmt: skip
        return {ANSWER: _json(answer)}

    return add_device(root, plan, str(request.key), make_files)


def accept_answer(root: Path, data: bytes, source: str) -> tuple[Path, str]:
    """Take in what the orchestrator has signed: the device's own file, and the id of the key whose commands it obeys.

    Raises SettingsError where it is for another device or key, or the device has its file already.
    """
    said = _read(data, source, _ANSWER_KIND, ("name", "url", "prefix", "orchestrator", "ca", "cert"))
    device = EdgeFolder(root.absolute()).device(check_name(said["name"]))
    config = device / "edge.toml"
    if config.exists():
        raise SettingsError(f"{config} is there already and is not overwritten; remove it to take in another answer")
    try:
        kept = json.loads((device / _PLAN).read_bytes())
        key = (device / "client.key").read_bytes()
    except (OSError, ValueError):
        raise SettingsError(
            f"{device} holds no request; make one with: toolwire edge init {said['name']} --request"
        ) from None
    try:
        name, orchestrator = client_name(said["cert"].encode(), key, said["ca"].encode()), said["orchestrator"]
        obeyed = PublicKey.parse(orchestrator)
    except ValueError as wrong:
        raise SettingsError(f"{source}: {wrong}") from None
    if name != said["name"]:
        raise SettingsError(f"{source}: the certificate is for {name[:80]!r}, not for {said['name']!r}")
    plan = EdgePlan(name, read_broker(said["url"]), **{one: _words(kept.get(one)) for one in _KEPT})
    plan = replace(plan, prefix=check_prefix(said["prefix"]))
    written = {
        "ca.pem": said["ca"], "client.pem": said["cert"], "orchestrator.pub": f"{obeyed}\n",
        "edge.toml": texts.device_config(plan, str(obeyed)),
    }  # fmt: skip
    try:
        for file, text in written.items():  # the device's own file last: what is there with it is whole
            write_whole(device / file, text.encode(), PRIVATE)
    except OSError as wrong:
        raise SettingsError(f"{wrong.filename or device} cannot be written: {wrong.strerror}") from None
    return config, obeyed.key_id


def _words(kept: Any) -> Any:
    """As a plan has it: JSON knows no tuples."""
    return tuple(kept) if isinstance(kept, list) else kept


def _read(data: bytes, source: str, kind: str, names: tuple[str, ...]) -> dict[str, str]:
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("kind") != kind:
        raise SettingsError(
            f"{source} is not the {kind.split()[2]} for a device that toolwire edge writes; make it again"
        )
    if wrong := [name for name in names if not isinstance(said.get(name), str)]:
        raise SettingsError(f"{source}: {', '.join(wrong)} must be a text")
    return {name: said[name] for name in names}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
