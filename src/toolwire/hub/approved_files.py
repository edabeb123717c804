"""What was approved is what runs: the content of the files that a command names is part of the question about it.

The digests are taken when the question is asked, shown in it, and part of its own digest, so that an answer counts for
this content only. They are taken once more right before the command runs.
"""

import asyncio

from msgspec import Struct
from msgspec.structs import replace

from toolwire.decide.command_files import CommandFiles, command_files
from toolwire.decide.families import FOLDER_ARGUMENT, SHELL_ARGUMENT
from toolwire.decide.paths import BOX_ROOT
from toolwire.decide.policy import SHELL
from toolwire.define.canonical import digest
from toolwire.execute.file_digests import FileDigests, file_digests
from toolwire.execute.readable_keys import readable_keys
from toolwire.protocol.calls import Allowed, NeedsApproval
from toolwire.protocol.tools import Grant

_SHOWN_DIGITS = 12
_MOST_SHOWN = 8


class ApprovedFiles(Struct, frozen=True):
    """The files of one question, as they were when it was asked."""

    command: str
    root: str
    named: CommandFiles
    digests: dict[str, str]

    async def difference(self) -> str:
        """The first file that is not what it was; nothing where all of them are.

        A file that is new counts where the command could run it: a program may obey one that was not there before.
        """
        now = (await asyncio.to_thread(file_digests, self.root, self.named.paths)).digests
        looked_at = {**self.digests, **now} if self.named.runs else self.digests
        return next((path for path in looked_at if self.digests.get(path) != now.get(path)), "")


async def bind_files(request: NeedsApproval, grant: Grant) -> tuple[NeedsApproval, ApprovedFiles | None]:
    """The question with the files of its command in it. A call that is no command has none."""
    allowed = request.allowed
    named = _named(allowed, grant)
    if named is None:
        return request, None
    root = grant.roots[0]
    found = await asyncio.to_thread(file_digests, root, named.paths)
    told = f"{_told(named, found)} {_keys_shown(await asyncio.to_thread(readable_keys, root))}".strip()
    if not told and not found.digests:
        return request, None
    whole = digest({"question": request.digest, "files": found.digests})
    bound = replace(request, digest=whole, reason=f"{request.reason} {told}".rstrip())
    return bound, ApprovedFiles(allowed.arguments[SHELL_ARGUMENT], root, named, found.digests)


def _named(allowed: Allowed, grant: Grant) -> CommandFiles | None:
    text = allowed.arguments.get(SHELL_ARGUMENT)
    if SHELL not in allowed.tool.needs or not isinstance(text, str) or not grant.roots:
        return None
    named = command_files(text, str(allowed.arguments.get(FOLDER_ARGUMENT) or "."), grant.roots)
    return replace(named, paths=tuple(path.removeprefix(f"{BOX_ROOT}/") for path in named.paths))


def _told(named: CommandFiles, found: FileDigests) -> str:
    """What of the files an answer covers, in sentences."""
    sentences = []
    if found.digests:
        shown = [f"{path} (sha256 {digits[:_SHOWN_DIGITS]})" for path, digits in found.digests.items()]
        sentences.append(f"Approval covers the present content of {_listed(shown)}.")
    missing = [f"{path} ({why})" for path, why in found.without.items()] if named.runs else []
    if named.made and (named.runs or found.digests):
        missing.append("files whose names are made when it runs")
    if named.runs:
        missing.append("files that these load or run in turn" if found.digests else "files that it loads or runs")
    if missing:
        sentences.append(f"Not covered: {_listed(missing)}.")
    return " ".join(sentences)


def _keys_shown(keys: tuple[str, ...]) -> str:
    """What the command sees once it is approved, and would not see unasked."""
    return f"The command can read the keys in {_listed(list(keys))}." if keys else ""


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - _MOST_SHOWN} more"] if len(names) > _MOST_SHOWN else []
    return ", ".join([*names[:_MOST_SHOWN], *more])
