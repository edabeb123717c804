"""What the rules about paths say of a command whose words lead elsewhere through links."""

from collections.abc import Iterable
from glob import escape, iglob
from itertools import islice
from pathlib import Path, PurePosixPath

from toolwire.decide.families import RuleReach
from toolwire.decide.globs import STAR
from toolwire.decide.path_rules import PathRules
from toolwire.decide.paths import BOX_ROOT, plain
from toolwire.decide.reading import only_reads
from toolwire.decide.shell import read_shell
from toolwire.decide.shell_reach import named_paths
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.toolbox.files.granted_paths import denied_failure
from toolwire.toolbox.files.hard_links import HardLinkedNames
from toolwire.toolbox.files.ruled_files import LOOKS, reason

_MOST_FOUND = 10_000


def check_links(context: Context, text: str, workdir: str) -> None:
    """Refuse a command that reaches by a link what a rule is about. Raises ToolFailure.

    How the words are written was judged before; only what a link makes of them is new.
    """
    if not context.grant.rules:
        return
    reading, roots = read_shell(text), context.grant.roots
    rules = PathRules.of(context.grant, LOOKS if only_reads(reading) else LOOKS | RuleReach.CHANGES)
    if not rules.rules:
        return
    twins = HardLinkedNames(rules)
    for path in (one for named in named_paths(reading, workdir, roots) for one in _expanded(roots[0], named)):
        if (failure := _refused(rules, twins, Path(roots[0]), path)) is not None:
            raise failure


def _expanded(workspace: str, path: str) -> Iterable[str]:
    """The folders that a pattern finds, links among them."""
    if STAR not in path:
        return [path]
    inner = path.removeprefix(f"{BOX_ROOT}/").removeprefix(f"{workspace}/")
    pattern = "*".join(map(escape, inner.split(STAR)))
    if inner.startswith("/"):
        return ()
    return islice(iglob(f"{pattern}/", root_dir=workspace), _MOST_FOUND)  # noqa: PTH207 - names from a folder


def _refused(rules: PathRules, twins: HardLinkedNames, workspace: Path, path: str) -> ToolFailure | None:
    inner = PurePosixPath(path)
    for top in (str(workspace), BOX_ROOT):
        if inner.is_absolute() and inner.is_relative_to(top):
            inner = inner.relative_to(top)
    try:
        where, whole = (workspace / inner).resolve(), workspace.resolve()
        if inner.is_absolute() or not where.is_relative_to(whole):
            return None
        real = str(where.relative_to(whole))
        twin = twins.rule_about(str(workspace), where.stat()) if where.is_file() else None
        rule = rules.against_folder(real) if where.is_dir() else rules.against(real) or twin
    except (OSError, ValueError, RuntimeError):  # no name of a file, or links in a circle
        return None
    if rule is None or (real == plain(str(inner)) and rule is not twin):
        return None
    return denied_failure(f"{path!r} leads to {real!r}: {reason(rule, real, path)}.")
