"""`Settings → AgentSpec → Grant and ChatModel`: how an agent is made, what it may do, and which model answers.

The spec is the one value from which an agent is made: what settings and flags say about it. A turn carries it; see
`resumed_specs` for turns that go on.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.assemble.agent_names import AGENT
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.tools import toolbox_of
from toolwire.define.nearest import nearest
from toolwire.define.toolbox import Toolbox
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.models.opening import NoModel, is_local, open_model, split_name
from toolwire.protocol.agents import AgentSpec, FormatSpec, GrantedByUser, ModelSpec, SkillSpec, ToolsSpec
from toolwire.protocol.chat import ChatModel
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.protocol.tools import Grant
from toolwire.protocol.turns import WORKFLOW_MODEL
from toolwire.settings import Layer, ModelChoice
from toolwire.settings.schema import Profile
from toolwire.toolbox.registry import PERMISSIONS
from toolwire.wire.formats.tally import FormatTally

if TYPE_CHECKING:
    from toolwire.models import recording, workflow
else:
    # Loaded where there is no model behind the name.
    recording = lazy_module("toolwire.models.recording")
    workflow = lazy_module("toolwire.models.workflow")

_CHANGES_FILES = frozenset({"shell", "git", "file_write"})
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}", re.ASCII | re.IGNORECASE)


def spec_of(
    project: ProjectFolder,
    choice: ModelChoice | None = None,
    *,
    base_url: str = "",
    key_env: str = "",
    replay: str = "",
    allow: tuple[str, ...] = (),
    confirms_all: bool = False,
    agent: str = AGENT,
) -> AgentSpec:
    """How an agent is made: settings, and what a command or request says beyond them. Without a choice, no model.

    Its tools are named once they are made.
    """
    chosen = project.settings.tools
    return AgentSpec(
        agent,
        model_spec(choice, base_url, key_env, replay) if choice is not None else ModelSpec(),
        ToolsSpec(chosen.groups, chosen.modules, _skills_of(project)),
        _granted_by(project, allow, confirms_all=confirms_all),
        project.settings.day(),
    )


def model_spec(choice: ModelChoice, base_url: str = "", key_env: str = "", replay: str = "") -> ModelSpec:
    """How a model is asked: as the settings choose it, at an address and with a key that flags may name."""
    formats = choice.tools
    return ModelSpec(
        choice.model,
        choice.profile,
        base_url,
        key_env,
        str(Path(replay).absolute()) if replay else "",
        choice.temperature,
        choice.max_tokens,
        FormatSpec(formats.definition_format, formats.call_parser, formats.result_format, formats.coach),
    )


def kept_spec(spec: AgentSpec, names: tuple[str, ...]) -> AgentSpec:
    """The spec as turns carry it: with the names of its tools, and without a password in the address of its model."""
    if "@" in spec.model.base_url:
        address = _without_login(spec.model.base_url)
        spec = replace(spec, model=replace(spec.model, base_url=address, had_login=True))
    return replace(spec, tools=replace(spec.tools, names=names))


def _without_login(url: str) -> str:
    """An address without user name and password; empty where an odd one may have part of them elsewhere."""
    start, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return "" if "@" in start + path else f"{start}://{host.rpartition('@')[2]}{slash}{path}"


def _granted_by(project: ProjectFolder, allow: tuple[str, ...], *, confirms_all: bool) -> GrantedByUser:
    grant = project.settings.grant(project.cwd)
    return GrantedByUser(
        grant.tier.name.lower() if _is_flag(project, "grant.tier") else "",
        allow,
        grant.roots if _is_flag(project, "grant.roots") else (),
        project.settings.tools.groups if _is_flag(project, "tools.groups") else (),
        confirms_all=confirms_all,
    )


def _is_flag(project: ProjectFolder, key: str) -> bool:
    return project.settings.origin(key).layer is Layer.FLAGS


def _skills_of(project: ProjectFolder) -> tuple[SkillSpec, ...]:
    if not project.has_skills:
        return ()
    found = project.skills.now().found
    return tuple(SkillSpec(one.skill.name, one.skill.version, one.folder.digest) for one in found if one.trusted)


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


def model_of(
    project: ProjectFolder, spec: ModelSpec, tallies: Sequence[FormatTally] = (), record: str = ""
) -> ChatModel:
    """The model of a spec, or what was recorded of one. Raises SettingsError and ModelError.

    Its formats are what the spec says and, where that leaves them open, what the tallies say has worked. What it says
    is kept in the file `record`, if there is one.
    """
    if not spec.name:
        return NoModel()
    if spec.name == WORKFLOW_MODEL:
        return workflow.WorkflowModel()
    if spec.replay:
        return recording.ReplayModel(Path(spec.replay))
    choice = choice_for(project, spec.name, spec.profile)
    model = open_model(
        spec.name, base_url=spec.base_url or choice.url,
        key_variable=_key_variable(project, spec.key_env) or choice.api_key_env,
        environ=project.environ, preference=spec.formats, tallies=tallies,
    )  # fmt: skip
    return recording.RecordingModel(model, Path(record)) if record else model


def learns_formats(spec: ModelSpec) -> bool:
    """Whether the formats in which a model is asked depend on what has worked, as the record tells."""
    return bool(spec.name and spec.formats.coach) and not (spec.replay or is_local(spec.name))


def _key_variable(project: ProjectFolder, named: str) -> str | None:
    """The variable that `--key-env` names. Raises SettingsError for one that is not set, and for a key in its place."""
    if not named:
        return None
    if not _VARIABLE.fullmatch(named):
        raise SettingsError(
            "--key-env takes the name of an environment variable, such as MY_API_KEY, not the key itself"
        )
    if not project.environ.get(named, "").strip():
        raise SettingsError(f"--key-env {named}: this variable is not set, or empty")
    return named


def choice_for(project: ProjectFolder, model: str, profile: str = "") -> ModelChoice:
    """How to reach a model: as this profile describes it, or the settings choose it, or another profile, or plainly."""
    settings, name = project.settings, split_name(model)
    if profile in settings.profiles and _names(settings.profiles[profile], name):
        return settings.of_profile(profile)
    chosen = settings.chosen()
    if split_name(chosen.model) == name:
        return chosen
    return next(
        (settings.of_profile(other) for other, one in settings.profiles.items() if _names(one, name)),
        ModelChoice(model, temperature=settings.temperature, max_tokens=settings.max_tokens),
    )


def _names(profile: Profile, model: tuple[str, str]) -> bool:
    return split_name(f"{profile.provider}:{profile.model}") == model
