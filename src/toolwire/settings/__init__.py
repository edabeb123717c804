"""Settings: one checked schema, five layers, and the origin of every value."""

from toolwire.settings.keys import describe
from toolwire.settings.loading import load, user_folder
from toolwire.settings.schema import Layer, ModelChoice, Origin, Profile, Settings, WireFormats

__all__ = ["Layer", "ModelChoice", "Origin", "Profile", "Settings", "WireFormats", "describe", "load", "user_folder"]
