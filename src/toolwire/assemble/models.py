"""The model of an agent, as settings and flags choose it."""

import re
from collections.abc import Sequence
from pathlib import Path

from toolwire.assemble.project import ProjectFolder
from toolwire.errors import SettingsError
from toolwire.models.model_names import split_name
from toolwire.models.recording import RecordingModel, ReplayModel
from toolwire.models.registry import open_model
from toolwire.protocol.chat import ChatModel
from toolwire.protocol.values import dataclass
from toolwire.settings import ModelChoice
from toolwire.wire.formats.tally import FormatTally

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelFlags:
    """What the flags of a command say about its model."""

    base_url: str | None = None
    record: str | None = None
    replay: str | None = None
    key_env: str | None = None


def model_of(
    project: ProjectFolder, choice: ModelChoice, asked: ModelFlags, tallies: Sequence[FormatTally] = ()
) -> ChatModel:
    """The chosen model, or what was recorded of one. Raises SettingsError and ModelError.

    Its formats are what its profile says and, where that leaves them open, what the tallies say has worked.
    """
    if asked.replay:
        return ReplayModel(Path(asked.replay))
    url = asked.base_url or choice.url
    model = open_model(
        choice.model, base_url=url, key_variable=_key_variable(project, asked) or choice.api_key_env,
        environ=project.environ, wish=choice.tools, tallies=tallies,
    )  # fmt: skip
    return RecordingModel(model, Path(asked.record)) if asked.record else model


def _key_variable(project: ProjectFolder, asked: ModelFlags) -> str | None:
    """The variable that `--key-env` names. Raises SettingsError for one that is not set, and for a key in its place."""
    if asked.key_env is None:
        return None
    if not _VARIABLE.fullmatch(asked.key_env):
        raise SettingsError(
            "--key-env takes the name of an environment variable, such as MY_API_KEY, not the key itself"
        )
    if not project.environ.get(asked.key_env, "").strip():
        raise SettingsError(f"--key-env {asked.key_env}: this variable is not set, or empty")
    return asked.key_env


def choice_for(project: ProjectFolder, model: str) -> ModelChoice:
    """How to reach a model by its name: as the settings choose it, or as a profile describes it, or plainly."""
    chosen = project.settings.chosen()
    if split_name(chosen.model) == split_name(model):
        return chosen
    for name, profile in project.settings.profiles.items():
        if split_name(f"{profile.provider}:{profile.model}") == split_name(model):
            return ModelChoice(
                model, name, profile.url, profile.api_key_env, profile.temperature, profile.max_tokens, profile.tools
            )
    return ModelChoice(model)
