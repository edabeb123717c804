"""`AgentSpec → AgentSpec`: the spec of a turn on record, as it holds when the turn goes on.

A turn carries the spec of which its agent was made. To go on with it is to take that one, less what the settings have
taken back since.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.assemble.agent_names import agents_of
from toolwire.assemble.project import ProjectFolder, open_project
from toolwire.assemble.specs import choice_for, model_spec
from toolwire.errors import SettingsError
from toolwire.protocol.agents import AgentSpec, ModelSpec
from toolwire.protocol.budgets import Budget, least
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.turns import Turn


def project_again(turn: Turn, flags: Mapping[str, Any], project: ProjectFolder) -> ProjectFolder:
    """The project for a turn that goes on: what the turn was given counts where no flag says otherwise."""
    if (spec := turn.spec) is None:
        return project
    keeps_profile = spec.model.profile in project.settings.profiles and not flags.get("model")
    before = {
        "grant.tier": spec.granted.tier or None,
        "grant.roots": list(spec.granted.roots) or None,
        "tools.groups": ",".join(spec.granted.groups) or None,
        "profile": spec.model.profile if keeps_profile else None,
    }
    said = {key: value for key, value in before.items() if value is not None and flags.get(key) is None}
    if not said:
        return project
    return open_project({**flags, **said}, name=project.name, cwd=project.cwd, environ=project.environ)


def resumed_spec(project: ProjectFolder, turn: Turn, now: AgentSpec, *, other_model: bool = False) -> AgentSpec:
    """The spec for a turn that goes on: that of its record, less what has been taken back, never more.

    - Model, address, temperature and formats are those of the record. With `other_model` they are those of `now`.
    - Limits (the budget of a day, tokens of a reply) are the lesser of both.
    - Permissions are those of the record and of the flags of `now`; the turn's own grant bounds them.
    - Tools come from where they come from now; `open_agent` leaves those that the record does not name.

    A turn of a program of its own has no spec: it goes on with that of `now`, and its own model.
    """
    before = turn.spec
    if before is None:
        model = now.model if other_model else _plain_model(project, turn.model, now.model)
        return replace(now, model=model)
    granted = replace(
        now.granted,
        permissions=tuple(dict.fromkeys((*before.granted.permissions, *now.granted.permissions))),
        confirms_all=before.granted.confirms_all or now.granted.confirms_all,
    )
    return AgentSpec(
        before.name if before.name in agents_of(project.settings) else now.name,
        now.model if other_model else _model_again(project, before.model, now.model),
        now.tools,
        granted,
        _lesser(before.budget, now.budget),
        result_schema=before.result_schema,
    )


def _model_again(project: ProjectFolder, before: ModelSpec, now: ModelSpec) -> ModelSpec:
    if not before.name:  # a single call asks no model
        return before
    if before.had_login and not (now.base_url or now.replay or before.replay):
        # The settings may name another address, where the question and a key must not go.
        at = f", {before.base_url}," if before.base_url else ""
        raise SettingsError(
            f"the address of its model{at} had a user name or password in it, which is not kept; "
            "go on with `toolwire ask --resume` and that address after --base-url"
        )
    allowed = choice_for(project, before.name, before.profile)
    return replace(
        before,
        base_url=now.base_url or before.base_url,
        had_login=False,
        key_env=now.key_env or before.key_env,
        replay=now.replay or before.replay,
        max_tokens=least(before.max_tokens, allowed.max_tokens),
    )


def _plain_model(project: ProjectFolder, name: str, now: ModelSpec) -> ModelSpec:
    return model_spec(choice_for(project, name), now.base_url, now.key_env, now.replay) if now.name else now


def _lesser(one: Budget | None, other: Budget | None) -> Budget | None:
    if one is None or other is None:
        return one or other
    return Budget(
        least(one.calls, other.calls),
        least(one.tokens, other.tokens),
        least(one.cost_usd, other.cost_usd),
        least(one.wall_s, other.wall_s),
    )


def with_own_grants(grant: Grant, spec: AgentSpec | None) -> Grant:
    """A grant of now with what a turn was given beyond the settings, as `--resume` would give it."""
    if spec is None:
        return grant
    own = spec.granted
    return replace(
        grant,
        tier=max(grant.tier, Tier[own.tier.upper()]) if own.tier else grant.tier,
        permissions=grant.permissions.union(own.permissions),
        roots=own.roots or grant.roots,
        confirmed=frozenset({"*"}) if own.confirms_all else grant.confirmed,
    )
