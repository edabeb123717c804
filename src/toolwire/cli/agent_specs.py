"""Between flags and the `AgentSpec` that a turn carries: what a turn began with, and beginning from that again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolwire.cli.opening import AGENT, Asked, Granted, Place, here
from toolwire.define.toolbox import Toolbox
from toolwire.protocol.agents import AgentSpec, FormatSpec, GrantedByUser, ModelSpec, SkillSpec, ToolsSpec
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.values import changed
from toolwire.settings import Layer, ModelChoice


def spec_of(place: Place, toolbox: Toolbox, granted: Granted, model: ModelSpec = ModelSpec()) -> AgentSpec:  # noqa: B008 -- a value
    """How the agent of a command is made: settings, and what flags say beyond them."""
    chosen = place.settings.tools
    return AgentSpec(
        AGENT,
        model,
        ToolsSpec(chosen.groups, chosen.modules, _skills_of(place), tuple(toolbox.names)),
        _granted_by(place, granted),
        place.settings.day(),
    )


def model_spec(place: Place, choice: ModelChoice, asked: Asked) -> ModelSpec:
    """The model of a command. An address with a password in it is not kept."""
    url, formats = asked.base_url or "", choice.tools
    return ModelSpec(
        choice.model,
        (place.settings.profile or "") if _is_flag(place, "profile") else "",
        "" if "@" in url else url,
        asked.key_env or "",
        str(Path(asked.replay).absolute()) if asked.replay else "",
        choice.temperature,
        choice.max_tokens,
        FormatSpec(formats.definition_format, formats.call_parser, formats.result_format, formats.coach),
    )


def _granted_by(place: Place, granted: Granted) -> GrantedByUser:
    grant = place.settings.grant(place.cwd)
    return GrantedByUser(
        grant.tier.name.lower() if _is_flag(place, "grant.tier") else "",
        tuple(granted.allow),
        grant.roots if _is_flag(place, "grant.roots") else (),
        place.settings.tools.groups if _is_flag(place, "tools.groups") else (),
        confirms_all=granted.yes,
    )


def _is_flag(place: Place, key: str) -> bool:
    return place.settings.origin(key).layer is Layer.FLAGS


def _skills_of(place: Place) -> tuple[SkillSpec, ...]:
    if not place.has_skills:
        return ()
    found = place.skills.now().found
    return tuple(SkillSpec(one.skill.name, one.skill.version, one.folder.digest) for one in found if one.trusted)


def place_again(spec: AgentSpec | None, flags: Mapping[str, Any], place: Place) -> Place:
    """The place of a command that goes on with a turn: what the turn was given counts where no flag says otherwise."""
    if spec is None:
        return place
    before = {
        "grant.tier": spec.granted.tier or None,
        "grant.roots": list(spec.granted.roots) or None,
        "tools.groups": ",".join(spec.granted.groups) or None,
        "profile": spec.model.profile or None,
    }
    merged = {**flags, **{key: value for key, value in before.items() if flags.get(key) is None}}
    return here(merged, project=place.project) if merged != flags else place


def granted_again(spec: AgentSpec | None, granted: Granted) -> Granted:
    """What flags grant to a turn that goes on, with what they granted when it began."""
    if spec is None:
        return granted
    allow = list(dict.fromkeys((*spec.granted.permissions, *granted.allow)))
    return Granted(allow, granted.yes or spec.granted.confirms_all, granted.resumes)


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
