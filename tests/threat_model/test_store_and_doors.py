"""The store, the log, what is installed: threats T46, T35, T61 to T71, and controls for tests that live elsewhere."""

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.record.test_store_approvals import CARD
from tests.toolbox.test_canvas import HOSTILE, Tags
from toolwire import Agent, SqliteStore, tool
from toolwire.errors import NotKept
from toolwire.gateway.log import Entry, as_json, as_text
from toolwire.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]
INJECTIONS = [
    "' OR '1'='1", "'; DROP TABLE approvals; --", '" OR ""="', "1; SELECT * FROM turns", "turn-1' --", "turn-1/*",
    "x' UNION SELECT body FROM calls --", "' || (SELECT name FROM sqlite_master) || '", "CASE WHEN 1 THEN 'turn-1' END",
    "%", "_", "*", "\\", "\\'", "a\x00b", "NULL", "0x27", "ʼ OR 1=1", "\ud800'", "char(39)",
]  # fmt: skip


@pytest.mark.parametrize("text", INJECTIONS)
async def test_T61_what_looks_like_sql_is_an_id_like_any_other(tmp_path: Path, text: str) -> None:
    async with await SqliteStore.at(tmp_path) as store:
        await store.ask_people(CARD, ())

        for read in (store.approval, store.turn):
            with pytest.raises(NotKept):
                await read(text)
        assert await store.approvals(turn_id=text) == []
        assert await store.calls(turn_id=text) == []
        assert await store.calls(tool=text) == []
        assert await store.audit_log(tool=text) == []
        assert await store.thread(text) == ()
        assert [card.id for card in await store.approvals()] == [CARD.id]


async def test_T61_control_the_same_reads_find_what_is_there(tmp_path: Path) -> None:
    async with await SqliteStore.at(tmp_path) as store:
        await store.ask_people(CARD, ())

        assert (await store.approval(CARD.id)).id == CARD.id
        assert len(await store.approvals(turn_id=CARD.turn_id)) == 1


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


def unhashed(lock: dict[str, Any]) -> list[str]:
    """The packages of a lock of which some file could be exchanged unnoticed."""
    wrong = []
    for package in lock["package"]:
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        is_ours = "editable" in package["source"] or "virtual" in package["source"]
        if not is_ours and not (files and all(file.get("hash", "").startswith("sha256:") for file in files)):
            wrong.append(package["name"])
    return wrong


def test_T71_every_file_that_is_installed_has_its_hash_in_the_lock() -> None:
    assert unhashed(tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))) == []


def test_T71_control_a_file_without_a_hash_would_be_found() -> None:
    text = '[[package]]\nname = "x"\nsource = { registry = "r" }\nwheels = [{ url = "https://files.example/x.whl" }]\n'

    assert unhashed(tomllib.loads(text)) == ["x"]


FORGERY = 'm\n{"status": 200}\r\nPOST /v1/messages m 200\x1b[2K\u2028x'


def test_T66_a_request_is_one_line_whatever_it_is_about() -> None:
    entry = Entry("req_1", "POST", "/v1/messages", FORGERY, status=401)

    assert [len(line.splitlines()) for line in (as_text(entry), as_json(entry))] == [1, 1]


def test_T66_control_as_it_came_it_would_be_several() -> None:
    assert len(f"POST /v1/messages {FORGERY} 401".splitlines()) > 3


async def test_T67_control_without_being_known_as_a_secret_it_is_everywhere() -> None:
    @tool
    def login(password: str) -> str:
        """Log in."""
        return f"welcome {password}"

    answer = await Agent(ScriptedModel(call("login", password="hunter2/öl"), "in"), [login]).ask("log in")

    assert "welcome hunter2/öl" in repr(answer)


def test_T46_control_put_on_a_page_as_they_are_most_of_these_are_tags() -> None:
    page = Tags()
    page.feed("\n".join(HOSTILE))

    assert {"script", "img"} <= {name for name, _ in page.found}


def test_T35_control_outside_of_a_box_git_pushes(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        given = ["git", "-C", str(tmp_path / "work"), "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(given, check=True, capture_output=True, text=True, timeout=30).stdout

    for kind, folder in ((["--bare"], "remote"), ([], "work")):
        made = ["git", "init", "-q", "-b", "main", *kind, str(tmp_path / folder)]
        subprocess.run(made, check=True, capture_output=True, timeout=30)
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("push", "-q", str(tmp_path / "remote"), "main")

    assert "refs/heads/main" in git("ls-remote", str(tmp_path / "remote"))
