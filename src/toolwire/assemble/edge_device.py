"""`DeviceConfig → EdgeAgent`: the agent of a device with its tools, its grant and its keys."""

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.tools import tool_dependencies, toolbox_of
from toolwire.deliver.secrets import NO_SECRETS
from toolwire.edge.device.agent import EdgeAgent
from toolwire.edge.device.config import BrokerConfig, DeviceConfig
from toolwire.edge.device.toolset import DeviceTools
from toolwire.edge.keys import PrivateKey, PublicKey, PublicKeys
from toolwire.edge.link import MqttBroker, client_tls
from toolwire.errors import SettingsError
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.lazy import lazy_module
from toolwire.settings import load

if TYPE_CHECKING:
    from toolwire.edge.device import skill_installer
else:
    # Loaded where skills are accepted: what reads archives comes with it.
    skill_installer = lazy_module("toolwire.edge.device.skill_installer")

_log = logging.getLogger(__name__)
_VARIABLES = "TOOLWIRE_"
_TRUST = "TOOLWIRE_TRUST"


def device_project(config: DeviceConfig, environ: Mapping[str, str]) -> ProjectFolder:
    """The project of a device: its folder, with what its file says on top. Raises SettingsError.

    That file alone rules: settings files in its folder and above it, of the user and in variables do not count. It
    names the folder of skills, so they are trusted.
    """
    seen = {name: value for name, value in environ.items() if not name.startswith(_VARIABLES)}
    seen |= {_TRUST: str(config.skills)} if config.skills else {}
    return ProjectFolder(config.folder, seen, load(config.folder, seen, config.flags, project_counts=False))


def open_device(
    config: DeviceConfig, environ: Mapping[str, str], on_ready: Callable[[], None] | None = None
) -> EdgeAgent:
    """The agent, ready to run. Raises SettingsError."""
    project = device_project(config, environ)
    secrets = project.settings.secrets(project.environ)
    has_secrets = secrets is not NO_SECRETS
    tools = DeviceTools(
        toolbox_of(project, tool_dependencies(project), is_worker=True),
        replace(project.settings.grant(project.cwd), platform=sys.platform),
        InProcessExecutor(),
        name=config.name,
        trusts_approvals=config.trusts_approvals,
        reveal=secrets.revealed if has_secrets else None,
        scrub=secrets.scrubbed if has_secrets else None,
    )
    accepted, installer = _accepted(config), None
    if config.skills is not None and config.accepts_skills:
        installer = skill_installer.SkillInstaller(config.skills, accepted, config.accepts_skills)
    return EdgeAgent(
        config, broker_of(config.broker), tools, _private_key(config.private_key), accepted, on_ready=on_ready,
        install_skill=installer, refresh_tools=project.skill_news if project.has_skills else None,
    )  # fmt: skip


def broker_of(config: BrokerConfig) -> MqttBroker:
    """Raises SettingsError."""
    for file in (config.key, config.password_file):
        if file is not None and file.exists() and file.stat().st_mode & 0o077:
            _log.warning("others can read %s, and log in to the broker with it; run: chmod 600 %s", file, file)
    password = "" if config.password_file is None else _read(config.password_file, "broker.password_file").decode()
    try:
        tls = client_tls(config.ca, config.cert, config.key) if config.tls else None
    except OSError as error:
        raise SettingsError(f"broker.ca, broker.cert or broker.key cannot be used: {error}") from None
    return MqttBroker(
        config.host, config.client_id, config.port, config.user, password.strip("\n"), tls, config.version,
        config.keepalive_s, max_message_bytes=config.max_message_bytes,
    )  # fmt: skip


def _private_key(file: Path) -> PrivateKey:
    if file.exists() and file.stat().st_mode & 0o077:
        raise SettingsError(f"{file}: others can read this private key; run: chmod 600 {file}")
    try:
        return PrivateKey.from_pem(_read(file, "keys.private"))
    except ValueError as why:
        raise SettingsError(f"{file}: is not a private key as toolwire edge init writes them ({why})") from None


def _accepted(config: DeviceConfig) -> PublicKeys:
    try:
        return PublicKeys(map(PublicKey.parse, config.orchestrators))
    except ValueError as why:
        raise SettingsError(f"keys.orchestrators: {why}") from None


def _read(file: Path, key: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{key}: {file} cannot be read ({error.strerror or error})") from None
