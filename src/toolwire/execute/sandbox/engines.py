"""All engines of this machine, ready to be chosen from."""

from collections.abc import Mapping
from functools import cache

from toolwire.execute.sandbox.bubblewrap import Bubblewrap
from toolwire.execute.sandbox.cgroups import Cgroups
from toolwire.execute.sandbox.contract import Engine
from toolwire.execute.sandbox.firejail import Firejail
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.execute.sandbox.podman import Podman
from toolwire.execute.sandbox.unconfined import Unconfined
from toolwire.protocol.engines import DEFAULT_ENGINE


@cache
def cgroups() -> Cgroups:
    """What groups can be made here. What an ended process has left behind is swept away first."""
    found = Cgroups.here()
    found.sweep()
    return found


def engines(readable: tuple[str, ...] = ()) -> Mapping[str, Engine]:
    """Every engine by its name. `readable` are further folders of the host that boxes may read."""
    groups = cgroups()
    found = (Bubblewrap(groups, readable=readable), Podman(), Firejail(groups), Unconfined(groups))
    return {engine.name: engine for engine in found}


def local_sandbox(
    *, floor: str = DEFAULT_ENGINE, default: str = DEFAULT_ENGINE, readable: tuple[str, ...] = ()
) -> Sandbox:
    """The sandbox of this machine."""
    return Sandbox(engines(readable), floor=floor, default=default)
