"""The tests of a skill, run: whether each comes out as its author says, and which permissions it takes."""

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.define.arguments import Checker
from toolwire.define.conformance import SkillFinding
from toolwire.define.skill_conformance import PERMISSIONS, without
from toolwire.errors import ToolFailure
from toolwire.execute.skill_folders import SkillCopies
from toolwire.execute.skills import SkillRunner, outcome
from toolwire.protocol.context import Context
from toolwire.protocol.operations import ExecOps
from toolwire.protocol.outcomes import Code
from toolwire.protocol.skills import Program, SkillTest, SkillTool
from toolwire.protocol.tools import Grant
from toolwire.toolbox.skills.catalog import FoundSkill
from toolwire.toolbox.skills.running import output_faults

_OURS = frozenset((Code.SANDBOX_UNAVAILABLE, Code.UNAVAILABLE))


class _Seen(Struct, frozen=True):
    """What came of a test."""

    exit_code: int | None
    stderr: str
    output: Any = None
    stdout: str = ""
    failure: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)


class SkillTrial:
    """Runs the tests of one tool of a trusted skill, each in a workspace of its own."""

    def __init__(
        self, found: FoundSkill, entry: SkillTool, ops: ExecOps, shelf: SkillCopies, network: tuple[str, ...] = ()
    ) -> None:
        self._entry = entry
        self._network = network
        self._runner = SkillRunner(ops, shelf, found.folder.path, found.folder.digest)
        self._faults = output_faults(entry.tool.output_schema, entry.tool.name)

    async def findings(self) -> list[SkillFinding]:
        """What the tests show to be wrong: with the tool, and with the permissions it asks for."""
        found = [finding for test in self._entry.tests for finding in await self._tried(test, self._entry.program)]
        if self._entry.tests and not found:
            found += [finding async for finding in self._overasked()]
        return found

    async def _overasked(self) -> AsyncIterator[SkillFinding]:
        for permission in sorted(self._entry.tool.needs):
            less = without(self._entry.program, permission)
            if less is not None and not await self._misses(less):
                gives = PERMISSIONS[permission]
                yield SkillFinding(
                    "error",
                    "permissions",
                    f"asks for {permission}, by which it {gives}, and all its tests pass without it; "
                    "leave it out, or add a test that needs it",
                )

    async def _misses(self, program: Program) -> bool:
        """Whether some test fails with this program."""
        for test in self._entry.tests:
            if await self._tried(test, program):
                return True
        return False

    async def _tried(self, test: SkillTest, program: Program) -> list[SkillFinding]:
        where = f"tests[{test.name}]"
        checked = Checker(self._entry.tool).check(test.arguments)
        if checked.faults:
            return [SkillFinding("error", f"{where}.input", "; ".join(checked.faults))]
        with tempfile.TemporaryDirectory(prefix="toolwire-") as folder:
            _fill(Path(folder), test.files)
            seen = await self._seen(replace(test, arguments=checked.arguments), program, folder)
            return [SkillFinding("error", place or where, said) for place, said in _differences(test, seen)]

    async def _seen(self, test: SkillTest, program: Program, folder: str) -> "_Seen":
        tool = self._entry.tool
        context = Context(grant=Grant(roots=(folder,), network=self._network), timeout_s=tool.timeout_s)
        try:
            ran = await self._runner.run(program, test.arguments, context)
            given = outcome(tool.name, ran, self._faults)
        except ToolFailure as failed:
            if failed.code in _OURS:
                raise
            return _Seen(failed.exit_code, failed.stderr, failure=str(failed), files=_content(folder, test.writes))
        text = ran.stdout.text
        return _Seen(0, given.stderr, given.structured, text, files=_content(folder, test.writes))


def _differences(test: SkillTest, seen: _Seen) -> Iterator[tuple[str, str]]:
    """Where something is not as it should be, if not at the test itself, and what."""
    name = f"in the test {test.name!r}"
    if seen.exit_code != test.exit_code:
        yield "", f"expected exit code {test.exit_code}, got {seen.exit_code}. {seen.failure or seen.stderr}"[:1_000]
    elif test.exit_code and not seen.stderr.strip():
        yield "errors", f"{name} it fails without a word on its standard error, so the reason is unknown"
    elif not test.exit_code and seen.failure:
        yield "output", f"{name}: {seen.failure}"[:1_000]
    elif test.output is not None and not _holds(test.output, seen.output):
        yield "", f"expected the output {test.output!r:.200}, got {seen.output!r:.200}"
    elif test.stdout is not None and test.stdout != seen.stdout:
        yield "", f"expected to read {test.stdout!r:.200}, got {seen.stdout!r:.200}"
    for path, content in test.writes.items():
        if seen.files.get(path) != content:
            yield "", f"expected {path} to hold {content!r:.200}, got {seen.files.get(path)!r:.200}"


def _holds(wanted: Any, got: Any) -> bool:
    """Whether everything that is wanted is there; an object may hold more."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        return all(key in got and _holds(value, got[key]) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(got, list):
        return len(wanted) == len(got) and all(map(_holds, wanted, got))
    return (type(wanted) is type(got) and bool(wanted == got)) or _same_number(wanted, got)


def _same_number(wanted: Any, got: Any) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (wanted, got))
    return numbers and bool(wanted == got)


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")


def _content(folder: str, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """What is in the files that a test should have written; a link of the program's making is not followed."""
    found: dict[str, str | None] = {}
    for name, content in wanted.items():
        path = Path(folder, name)
        is_plain = path.is_file() and path.resolve() == Path(folder).resolve() / name
        found[name] = path.read_bytes()[: 4 * len(content) + 1_000].decode("utf-8", "replace") if is_plain else None
    return found
