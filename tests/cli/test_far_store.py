"""A store that is not on this machine: the same commands, and a sentence when it is not there."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import scripted
from tests.record.hrana_server import hrana_server


@pytest.fixture(params=["libsql", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """A database server that the settings of the project name."""
    with ExitStack() as stack:
        if request.param == "libsql":
            url = stack.enter_context(hrana_server(tmp_path / "server.db")).url
        else:
            url = request.getfixturevalue("postgres").new_database()
        (tmp_path / "toolwire.toml").write_text(f'[store]\nkind = "{request.param}"\nurl = "{url}"\n')
        yield


@pytest.mark.usefixtures("server")
def test_what_was_asked_is_kept_in_a_server(inside: Inside, tmp_path: Path) -> None:
    with scripted("Good morning.") as model:
        ran = inside("ask", "Hello", *model.flags)
        newest = inside("status", "--json").json["newest"]
        shown = inside("status").out

    assert "://" in next(line for line in shown.splitlines() if line.startswith("store"))
    assert ran.out == "Good morning.\n"
    assert [one["question"] for one in newest] == ["Hello"]
    assert not (tmp_path / ".toolwire" / "store.db").exists()


@pytest.mark.parametrize("kind", ["libsql", "postgres"])
def test_a_server_without_an_address_is_asked_for(inside: Inside, tmp_path: Path, kind: str) -> None:
    (tmp_path / "toolwire.toml").write_text(f'[store]\nkind = "{kind}"\n')

    ran = inside("ask", "Hello")

    assert (ran.code, "set store.url" in ran.err) == (2, True)


@pytest.mark.parametrize("kind", ["libsql", "postgres"])
def test_a_password_whose_variable_is_not_set_is_asked_for(inside: Inside, tmp_path: Path, kind: str) -> None:
    url = {"libsql": "http://127.0.0.1:1", "postgres": "postgresql://user@127.0.0.1:1/base"}[kind]
    (tmp_path / "toolwire.toml").write_text(f'[store]\nkind = "{kind}"\nurl = "{url}"\ntoken_env = "DB_PASSWORD"\n')

    ran = inside("logs")

    assert (ran.code, "store.token_env: the variable DB_PASSWORD is not set" in ran.err) == (2, True), ran.err


@pytest.mark.usefixtures("server")
def test_a_store_in_a_server_is_copied_into_a_folder_that_opens_here(inside: Inside, tmp_path: Path) -> None:
    with scripted("Good morning.", "Again.") as model:
        inside("ask", "Hello", *model.flags)
        inside("ask", "Hello?", *model.flags)
        assert inside("call", "echo", "message=x").code == 0
        rows = inside("logs", "--json").json
        copied = inside("store", "backup", "copy")
    (tmp_path / "toolwire.toml").unlink()

    assert copied.code == 0, copied.err
    assert inside("logs", "--json", "--home", "copy").json == rows
    newest = inside("status", "--json", "--home", "copy").json["newest"]
    assert [one["question"] for one in newest][-2:] == ["Hello?", "Hello"]
    assert inside("audit", "verify", "--home", "copy").code == 0
