"""A store that is not on this machine: the same commands, and a sentence when it is not there."""

from pathlib import Path

from tests.cli.conftest import Inside
from tests.cli.stage import scripted
from tests.record.hrana_server import hrana_server


def test_what_was_asked_is_kept_in_a_libsql_server(inside: Inside, tmp_path: Path) -> None:
    with hrana_server(tmp_path / "server.db") as server, scripted("Good morning.") as model:
        (tmp_path / "toolwire.toml").write_text(f'[store]\nkind = "libsql"\nurl = "{server.url}"\n')
        ran = inside("ask", "Hello", *model.flags)
        newest = inside("status", "--json").json["newest"]

    assert ran.out == "Good morning.\n"
    assert [one["question"] for one in newest] == ["Hello"]
    assert not (tmp_path / ".toolwire" / "store.db").exists()


def test_a_server_without_an_address_is_asked_for(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[store]\nkind = "libsql"\n')

    ran = inside("ask", "Hello")

    assert (ran.code, "set store.url" in ran.err) == (2, True)


def test_a_store_in_a_server_is_copied_into_a_folder_that_opens_here(inside: Inside, tmp_path: Path) -> None:
    with hrana_server(tmp_path / "server.db") as server, scripted("Good morning.", "Again.") as model:
        (tmp_path / "toolwire.toml").write_text(f'[store]\nkind = "libsql"\nurl = "{server.url}"\n')
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
