"""`AgentSpec → Grant`: what an agent may do, by the settings and by what its user adds to them."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.specs import AGENT
from toolwire.assemble.tools import toolbox_of
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.errors import SettingsError
from toolwire.protocol.agents import GrantedByUser
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.protocol.tools import Grant
from toolwire.settings import Layer
from toolwire.toolbox.registry import PERMISSIONS

_CHANGES_FILES = frozenset({"shell", "git", "file_write"})


def grant_of(
    project: ProjectFolder,
    granted: GrantedByUser,
    toolbox: Toolbox | None = None,
    *,
    resumes: bool = False,
    agent: str = AGENT,
) -> Grant:
    """The settings' grant with what the flags add to it. Raises SettingsError for a permission that no tool needs.

    Where no tools are given, they are made only for a permission that no built-in tool needs; what makes them later
    asks `require_needed` about the others.
    """
    grant = project.settings.granted_to(agent, project.settings.grant(project.cwd))
    if toolbox is not None or not PERMISSIONS.issuperset(granted.permissions):
        require_needed(granted, grant, toolbox or toolbox_of(project))
    confirmed = frozenset({"*"}) if granted.confirms_all else grant.confirmed
    whole = replace(
        grant, permissions=grant.permissions | set(granted.permissions), confirmed=confirmed, platform=sys.platform
    )
    if project.settings.store.kind == "sqlite" and project.settings.remote() is None:
        require_record_apart(project.home, whole)
    return resuming_grant(project, whole) if resumes else whole


def require_needed(granted: GrantedByUser, grant: Grant, toolbox: Toolbox) -> None:
    """Raises SettingsError for a permission that neither the grant has nor any tool needs."""
    known = grant.permissions.union(*(tool.needs for tool in toolbox)) if granted.permissions else ()
    for name in granted.permissions:
        _require_permission(name, known)


def resuming_grant(project: ProjectFolder, grant: Grant) -> Grant:
    """A grant to judge turns on record by: where no roots are set, the whole project may have been their folder."""
    if project.settings.origin("grant.roots").layer is not Layer.BUILT_IN or project.settings.remote() is not None:
        return grant
    return replace(grant, roots=(*grant.roots, str(project.settings.folder or project.cwd)))


def _require_permission(name: str, known: Iterable[str]) -> None:
    names = sorted(known)
    if name not in names:
        near = nearest(name, names)
        advice = f"did you mean {' or '.join(near)}?" if near else f"tools need: {', '.join(names) or 'none at all'}"
        raise SettingsError(f"--allow {name[:80]}: no tool needs such a permission; {advice}")


def require_record_apart(home: Path, grant: Grant) -> None:
    """Raise SettingsError where tools of this grant could change what is kept in `home`.

    At the top of a granted folder `.toolwire` is kept from every tool; under another name it would be any folder.
    """
    if grant.permissions.isdisjoint(_CHANGES_FILES):
        return
    own = home.resolve()
    for root in (Path(root).resolve() for root in grant.roots):
        if own.is_relative_to(root) and own != root / OWN_STATE:
            raise SettingsError(
                f"the record lies in {own}, where tools that may change {root} could change it too; "
                f"set store.home to a folder outside of grant.roots, or to {root / OWN_STATE}"
            )
