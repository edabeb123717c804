"""T61: what looks like SQL is an id, a name or a filter like any other, at every door of the record."""

import ast
import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside, inside
from tests.record.test_store_approvals import CARD, NO
from tests.threat_model.sql_texts import AT_COMMANDS, TEXTS
from toolwire import Agent, SqliteStore, tool
from toolwire.errors import StoreError
from toolwire.protocol.records import AuditRow
from toolwire.testing import ScriptedModel, call

__all__ = ["inside"]
ROOT = Path(__file__).parents[2]
NOW = 1_800_000_000.0
Door = Callable[[SqliteStore, str], Awaitable[Any]]
DOORS: dict[str, Door] = {
    "turn": lambda store, text: store.turn(text),
    "turns by state": lambda store, text: store.turns(state=text),
    "resume": lambda store, text: store.resume(text),
    "thread": lambda store, text: store.thread(text),
    "calls of a turn": lambda store, text: store.calls(turn_id=text),
    "calls of a tool": lambda store, text: store.calls(tool=text),
    "calls of both": lambda store, text: store.calls(turn_id=text, tool=text),
    "approval": lambda store, text: store.approval(text),
    "answer": lambda store, text: store.answer(text, NO),
    "approvals": lambda store, text: store.approvals(turn_id=text),
    "audit of a turn": lambda store, text: store.audit_log(turn_id=text),
    "audit of a tool": lambda store, text: store.audit_log(tool=text),
    "fetch": lambda store, text: store.fetch(text),
}
COMMANDS = [
    ("logs", "--json", "--tool"),
    ("logs", "--json", "--turn"),
    ("approvals", "--all", "--json", "--turn"),
    ("explain", "--json", "--call"),
    ("approve", "--deny", "--json", "--"),
]


@tool
def look(at: str) -> str:
    """Look."""
    return at


async def filled(home: Path) -> None:
    """A record with something behind every door."""
    async with await SqliteStore.at(home) as store:
        model = ScriptedModel(call("look", at="it"), "TabState.")
        await Agent(model, [look], store=store).ask("Look!", thread="thread-1")
        await store.request_approval(CARD, ())
        await store.keep(b"a body")


def everything(home: Path) -> list[str]:
    connection = sqlite3.connect(home / "store.db")
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_T61_the_corpus_is_large() -> None:
    assert len(TEXTS) >= 500


@pytest.mark.parametrize("door", DOORS)
async def test_T61_no_text_finds_or_changes_anything_at_a_door_of_the_store(tmp_path: Path, door: str) -> None:
    await filled(tmp_path)
    before = everything(tmp_path)

    found = []
    async with await SqliteStore.at(tmp_path) as store:
        for text in TEXTS:
            try:
                if await DOORS[door](store, text):
                    found.append(text)
            except StoreError:
                continue
        spent = [await store.spent(text, NOW) for text in TEXTS]

    assert found == []
    assert {one.calls for one in spent} == {0}
    assert everything(tmp_path) == before


async def test_T61_every_text_is_kept_and_found_again_as_itself(tmp_path: Path) -> None:
    whole = [text for text in TEXTS if "\ud800" not in text]  # half a character is spelled out in a column
    async with await SqliteStore.at(tmp_path) as store:
        await store.audit([AuditRow(NOW, "allowed", turn_id=text, tool=text) for text in whole])

        for text in whole:
            assert [row.tool for row in await store.audit_log(tool=text)] == [text]
            assert [row.turn_id for row in await store.audit_log(turn_id=text)] == [text]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words))
def test_T61_no_text_finds_or_changes_anything_at_a_command(
    tmp_path: Path, inside: Inside, words: tuple[str, ...]
) -> None:
    """Every text is tried at the doors of the store, to which commands hand them; here it is the commands' own part.

    The commands share the texts among them.
    """
    texts = AT_COMMANDS[COMMANDS.index(words) :: len(COMMANDS)]
    home = tmp_path / ".toolwire"
    home.mkdir()
    asyncio.run(filled(home))
    before = everything(home)

    found = [text for text in texts if CARD.id in (said := inside(*words, text).out) or "Look!" in said]

    assert found == []
    assert everything(home) == before


def test_T61_control_put_into_a_statement_many_of_them_are_obeyed() -> None:
    """What shows rows that nobody asked for, or changes them, in one of the ways in which texts are put into quotes."""
    obeyed = [text for text in TEXTS if any(_is_obeyed(text, quoted) for quoted in CARELESS)]

    assert len(obeyed) > 100


CARELESS = ("'{}'", '"{}"', "('{}')", "(('{}'))", "`{}`", "[{}]")


def _is_obeyed(text: str, quoted: str) -> bool:
    base = sqlite3.connect(":memory:")
    base.executescript(
        "CREATE TABLE approvals (turn_id, body); CREATE TABLE turns (state); CREATE TABLE audit (event);"
        "CREATE TABLE records (context); INSERT INTO approvals VALUES ('turn-2', 'a secret');"
        "INSERT INTO turns VALUES ('running'); INSERT INTO audit VALUES ('allowed'); INSERT INTO records VALUES ('x');"
    )
    before, shown = list(base.iterdump()), []
    statement = f"SELECT body FROM approvals WHERE turn_id = {quoted.format(text)}"
    try:
        if ";" in text:
            base.executescript(statement)
        else:
            shown = base.execute(statement).fetchall()
    except (sqlite3.Error, ValueError):
        pass  # a mistake in the statement, perhaps after half of it was done
    try:
        return bool(shown) or list(base.iterdump()) != before
    finally:
        base.close()


async def test_T61_control_the_same_doors_find_what_is_there(tmp_path: Path) -> None:
    await filled(tmp_path)
    async with await SqliteStore.at(tmp_path) as store:
        assert (await store.approval(CARD.id)).id == CARD.id
        assert len(await store.approvals(turn_id=CARD.turn_id)) == 1
        assert len(await store.calls(tool="look")) == 1
        assert len(await store.thread("thread-1")) > 2


def spliced(source: str) -> Iterator[int]:
    """The lines on which text is put together into SQL. A number written with `:d` is no text."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr in {"execute", "executemany", "executescript"} and node.args and _is_made(node.args[0]):
            yield node.lineno


def _is_made(text: ast.expr) -> bool:
    match text:
        case ast.JoinedStr(values=values):
            return not all(isinstance(part, ast.Constant) or _is_number(part) for part in values)
        case ast.BinOp():
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "join" | "replace")):
            return True
    return False


def _is_number(part: ast.expr) -> bool:
    spec = part.format_spec if isinstance(part, ast.FormattedValue) else None
    return isinstance(spec, ast.JoinedStr) and ast.unparse(spec) == "f'd'"


def test_T61_no_statement_is_put_together_from_text() -> None:
    sources = sorted((ROOT / "src" / "toolwire").rglob("*.py"))
    made = [f"{path.name}:{line}" for path in sources for line in spliced(path.read_text(encoding="utf-8"))]

    assert made == []


@pytest.mark.parametrize("bad", ['db.execute(f"SELECT {x}")', 'db.execute("SELECT " + x)', 'db.execute("".join(x))'])
def test_T61_control_a_statement_made_of_text_would_be_found(bad: str) -> None:
    assert list(spliced(bad)) == [1]
