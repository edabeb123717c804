"""Settings: one checked schema, five layers, and the origin of every value."""

from toolwire.record.ownership import state_folder
from toolwire.settings.keys import describe
from toolwire.settings.loading import load, project_file, trust_requests, user_folder
from toolwire.settings.schema import (
    BusSettings,
    Layer,
    ModelChoice,
    Origin,
    Profile,
    RemoteFolder,
    SecretLine,
    ServiceSettings,
    Settings,
    WireFormats,
)
from toolwire.settings.trust import Untrusted, forget, is_trusted, trust

__all__ = [
    "BusSettings", "Layer", "ModelChoice", "Origin", "Profile", "RemoteFolder", "SecretLine", "ServiceSettings",
    "Settings", "Untrusted", "WireFormats", "describe", "forget", "is_trusted", "load", "project_file",
    "state_folder", "trust", "trust_requests", "user_folder",
]  # fmt: skip
