"""`AgentSpec → ChatModel`, and how the settings say that a model is reached."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolwire.assemble.project import ProjectFolder
from toolwire.errors import ModelRefused, SettingsError
from toolwire.lazy import lazy_module
from toolwire.models.opening import is_local, open_model, split_name
from toolwire.protocol.agents import ModelSpec
from toolwire.protocol.chat import ChatModel, Reply, Request
from toolwire.protocol.turns import NO_MODEL, WORKFLOW_MODEL
from toolwire.settings import ModelChoice
from toolwire.settings.schema import Profile
from toolwire.wire.formats.tally import FormatTally

if TYPE_CHECKING:
    from toolwire.models import recording, workflow
else:
    # Loaded where there is no model behind the name.
    recording = lazy_module("toolwire.models.recording")
    workflow = lazy_module("toolwire.models.workflow")

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}", re.ASCII | re.IGNORECASE)


class NoModel:
    """Stands where a model would be, in work that needs none."""

    name = NO_MODEL

    async def ask(self, request: Request, on_delta: Any = None) -> Reply:  # noqa: ARG002 -- the contract's arguments
        raise ModelRefused("this command asks no model")

    async def close(self) -> None:
        """Nothing to let go of."""


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
