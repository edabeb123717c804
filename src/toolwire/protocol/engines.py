"""The sandbox engines by name: settings, skills and the sandbox itself mean these."""

from typing import Literal, get_args

SandboxEngine = Literal["none", "firejail", "bubblewrap", "podman"]

ENGINES: tuple[str, ...] = get_args(SandboxEngine)
"""The engines, weakest first."""

DEFAULT_ENGINE: SandboxEngine = "bubblewrap"
