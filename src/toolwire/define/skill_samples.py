"""The examples and tests of a skill's tool."""

from pathlib import PurePosixPath
from typing import Any

from toolwire.define.schemas import plain_copy
from toolwire.define.tables import Table
from toolwire.protocol.skills import SkillExample, SkillTest

EXAMPLE_KEYS = ("explanation", "input", "output")
TEST_KEYS = ("name", "input", "output", "stdout", "exit_code", "files", "writes")


def examples_of(entry: Table) -> tuple[SkillExample, ...]:
    """The `[[tools.examples]]`: what to send, what comes back, and how to read it. Raises `DefinitionError`."""
    return tuple(_example(table.only(EXAMPLE_KEYS)) for table in entry.tables("examples"))


def tests_of(entry: Table) -> tuple[SkillTest, ...]:
    """The `[[tools.tests]]`. Raises `DefinitionError`."""
    return tuple(_test(table.only(TEST_KEYS), place) for place, table in enumerate(entry.tables("tests"), 1))


def _example(table: Table) -> SkillExample:
    return SkillExample(table.text("explanation", ""), _arguments(table), _output(table))


def _arguments(table: Table) -> dict[str, Any]:
    inner = table.table("input")
    return plain_copy(inner.values, inner.where)


def _output(table: Table) -> Any:
    return plain_copy({"output": table.values.get("output")}, f"{table.where}.output")["output"]


def _test(table: Table, place: int) -> SkillTest:
    return SkillTest(
        name=table.text("name", f"test {place}", most=200),
        arguments=_arguments(table),
        output=_output(table),
        stdout=_stdout(table),
        exit_code=table.whole("exit_code", 0, 0, 255),
        files=_files(table.table("files")),
        writes=_files(table.table("writes")),
    )


def _stdout(table: Table) -> str | None:
    value: Any = table.values.get("stdout")
    if value is not None and not isinstance(value, str):
        table.wrong("stdout", "must be text in quotes")
    return value


def _files(table: Table) -> dict[str, str]:
    for path, content in table.values.items():
        parts = PurePosixPath(path).parts
        if path.startswith("/") or ".." in parts or not parts or "\0" in path:
            table.wrong(path[:60], "must be a path inside the test's own workspace")
        if not isinstance(content, str):
            table.wrong(path[:60], "must be text in quotes: what is in the file")
    return dict(table.values)
