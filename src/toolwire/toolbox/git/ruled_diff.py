"""A difference without the files that a rule keeps back."""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from toolwire.decide.families import RuleReach
from toolwire.decide.path_rules import PathRules
from toolwire.protocol.context import Context
from toolwire.toolbox.files.granted_paths import denied_failure
from toolwire.toolbox.git.output import FileDiff

_SECTION = re.compile(r"^(?=diff --(?:git|cc|combined) )", re.MULTILINE)


def without_ruled_out(
    files: list[FileDiff], patch: str, context: Context, repository: str, paths: list[str], *, cut: bool
) -> tuple[list[FileDiff], str, str]:
    """The files and the patch that may be shown, and what is left out in a sentence. Raises ToolFailure."""
    named = [f"{repository}/{path}" for path in paths]
    rules = replace(
        PathRules.of(context.grant, RuleReach.CONTENT, named), guards_keys=False
    )  # history holds them anyway
    kept_back = [any(rules.against(path) is not None for path in _paths(file, repository)) for file in files]
    if not any(kept_back):
        return files, patch, ""
    sections = [section for section in _SECTION.split(patch) if section.strip()]
    if (len(sections) != len(files) and not cut) or not all(map(_belongs, sections, files)):
        raise denied_failure(
            "a rule keeps back some of these files, and they cannot be told apart; give the paths of others"
        )
    count = sum(kept_back)
    shown = [file for file, back in zip(files, kept_back, strict=True) if not back]
    text = "".join(section for section, back in zip(sections, kept_back, strict=False) if not back)
    return shown, text, f"Left out by rule: {count} {'file' if count == 1 else 'files'}."


def _paths(file: FileDiff, repository: str) -> Iterator[str]:
    """Where a file lies in the workspace, which may begin above or below the top of the repository."""
    for path in filter(None, (file["path"], file["old_path"])):
        yield f"{repository}/{path}"
        parts = path.split("/")
        yield from ("/".join(parts[at:]) for at in range(len(parts)))


def _belongs(section: str, file: FileDiff) -> bool:
    head = section.partition("\n")[0]
    return file["path"] in head or '"' in head
