"""Between flags and the `AgentSpec` that a turn carries: what a turn began with, and beginning from that again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolwire.assemble.grants import AGENT, GrantFlags
from toolwire.assemble.models import ModelFlags
from toolwire.assemble.project import ProjectFolder, open_project
from toolwire.define.toolbox import Toolbox
from toolwire.protocol.agents import AgentSpec, FormatSpec, GrantedByUser, ModelSpec, SkillSpec, ToolsSpec
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.values import changed
from toolwire.settings import Layer, ModelChoice


def spec_of(project: ProjectFolder, toolbox: Toolbox, granted: GrantFlags, model: ModelSpec = ModelSpec()) -> AgentSpec:  # noqa: B008 -- a value
    """How the agent of a command is made: settings, and what flags say beyond them."""
    chosen = project.settings.tools
    return AgentSpec(
        AGENT,
        model,
        ToolsSpec(chosen.groups, chosen.modules, _skills_of(project), tuple(toolbox.names)),
        _granted_by(project, granted),
        project.settings.day(),
    )


def model_spec(project: ProjectFolder, choice: ModelChoice, asked: ModelFlags) -> ModelSpec:
    """The model of a command. An address with a password in it is not kept."""
    url, formats = asked.base_url or "", choice.tools
    return ModelSpec(
        choice.model,
        (project.settings.profile or "") if _is_flag(project, "profile") else "",
        "" if "@" in url else url,
        asked.key_env or "",
        str(Path(asked.replay).absolute()) if asked.replay else "",
        choice.temperature,
        choice.max_tokens,
        FormatSpec(formats.definition_format, formats.call_parser, formats.result_format, formats.coach),
    )


def _granted_by(project: ProjectFolder, granted: GrantFlags) -> GrantedByUser:
    grant = project.settings.grant(project.cwd)
    return GrantedByUser(
        grant.tier.name.lower() if _is_flag(project, "grant.tier") else "",
        tuple(granted.allow),
        grant.roots if _is_flag(project, "grant.roots") else (),
        project.settings.tools.groups if _is_flag(project, "tools.groups") else (),
        confirms_all=granted.yes,
    )


def _is_flag(project: ProjectFolder, key: str) -> bool:
    return project.settings.origin(key).layer is Layer.FLAGS


def _skills_of(project: ProjectFolder) -> tuple[SkillSpec, ...]:
    if not project.has_skills:
        return ()
    found = project.skills.now().found
    return tuple(SkillSpec(one.skill.name, one.skill.version, one.folder.digest) for one in found if one.trusted)


def project_again(spec: AgentSpec | None, flags: Mapping[str, Any], project: ProjectFolder) -> ProjectFolder:
    """The project for a turn that goes on: what the turn was given counts where no flag says otherwise."""
    if spec is None:
        return project
    before = {
        "grant.tier": spec.granted.tier or None,
        "grant.roots": list(spec.granted.roots) or None,
        "tools.groups": ",".join(spec.granted.groups) or None,
        "profile": spec.model.profile or None,
    }
    merged = {**flags, **{key: value for key, value in before.items() if flags.get(key) is None}}
    return open_project(merged, name=project.name) if merged != flags else project


def granted_again(spec: AgentSpec | None, granted: GrantFlags) -> GrantFlags:
    """What flags grant to a turn that goes on, with what they granted when it began."""
    if spec is None:
        return granted
    allow = list(dict.fromkeys((*spec.granted.permissions, *granted.allow)))
    return GrantFlags(allow, granted.yes or spec.granted.confirms_all, granted.resumes)


def tools_again(spec: AgentSpec | None, toolbox: Toolbox) -> Toolbox:
    """The tools that a turn had as far as they are still there, and no others."""
    return toolbox if spec is None else Toolbox(*toolbox.only(spec.tools.names))


def with_own_grants(grant: Grant, spec: AgentSpec | None) -> Grant:
    """A grant of now with what a turn was given beyond the settings, as `--resume` would give it."""
    if spec is None:
        return grant
    own = spec.granted
    return changed(
        grant,
        tier=max(grant.tier, Tier[own.tier.upper()]) if own.tier else grant.tier,
        permissions=grant.permissions.union(own.permissions),
        roots=own.roots or grant.roots,
        confirmed=frozenset({"*"}) if own.confirms_all else grant.confirmed,
    )


def model_again(spec: AgentSpec | None, flags: ModelFlags) -> ModelFlags:
    """How the model of a turn that goes on is reached: as flags say, and where they do not as when it began."""
    if spec is None:
        return flags
    model = spec.model
    return replace(
        flags,
        base_url=flags.base_url or model.base_url or None,
        key_env=flags.key_env or model.key_env or None,
        replay=flags.replay or model.replay or None,
    )
