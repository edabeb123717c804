"""`toolwire store`: what is pruned and what stays, the space that comes back, and copies that open elsewhere."""

import os
import shlex
import sqlite3
import time
from pathlib import Path

import pytest

from toolwire.cli.entry.exits import Exit

from .conftest import Inside

DAY_S = 86_400.0


def changed(home: Path, *statements: str) -> None:
    """Change a store behind its back, as time would."""
    connection = sqlite3.connect(home / "store.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def counted(home: Path, table: str) -> int:
    connection = sqlite3.connect(home / "store.db")
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    connection.close()
    return int(count)


def ids(home: Path) -> list[str]:
    connection = sqlite3.connect(home / "store.db")
    found = [turn_id for (turn_id,) in connection.execute("SELECT id FROM turns ORDER BY seq")]
    connection.close()
    return found


def grow_old(home: Path, days: float = 40) -> None:
    """Let all ended turns be of another month. Audit rows keep their times, since they prove themselves."""
    changed(home, f"UPDATE turns SET updated_at = updated_at - {days * DAY_S}")


@pytest.fixture
def home(inside: Inside, tmp_path: Path) -> Path:
    for number in range(3):
        assert inside("call", "echo", f"message={number}").code == Exit.DONE
    return tmp_path / ".toolwire"


def settings(tmp_path: Path, *lines: str) -> None:
    (tmp_path / "toolwire.toml").write_text("\n".join(["[retention]", *lines, ""]), encoding="utf-8")


def test_without_limits_nothing_is_pruned_and_that_is_said(inside: Inside, home: Path) -> None:
    grow_old(home)

    ran = inside("store", "prune")

    assert ran.code == Exit.DONE
    assert "Nothing to remove" in ran.err
    assert "retention.turns_days" in ran.err
    assert counted(home, "turns") == 3


def test_a_dry_run_says_what_would_go_and_removes_nothing(inside: Inside, home: Path, tmp_path: Path) -> None:
    settings(tmp_path, "turns_days = 30")
    grow_old(home)

    said = inside("store", "prune", "--dry-run", "--json").json

    assert (said["dry_run"], said["turns"], said["calls"]) == (True, 3, 3)
    assert (counted(home, "turns"), counted(home, "records")) == (3, 6)


def test_old_turns_go_with_their_calls_and_sums_stay(inside: Inside, home: Path, tmp_path: Path) -> None:
    grow_old(home)
    inside("call", "echo", "message=new")
    settings(tmp_path, "turns_days = 30")
    before = inside("metrics", "--json").json

    said = inside("store", "prune", "--json").json

    assert (said["turns"], said["calls"]) == (3, 3)
    assert (counted(home, "turns"), counted(home, "records")) == (1, 2)
    after = inside("metrics", "--json").json
    assert [tool["calls"] for tool in after["tools"]] == [tool["calls"] for tool in before["tools"]] == [4]
    assert counted(home, "spending") == 1
    assert [row["event"] for row in inside("logs", "--json").json][-1] == "pruned"


def test_turns_beyond_a_size_go_oldest_first(inside: Inside, home: Path, tmp_path: Path) -> None:
    settings(tmp_path, "turns_mb = 0.0035")

    before = ids(home)

    inside("store", "prune")

    after = ids(home)
    assert 0 < len(after) < 3
    assert after == before[-len(after) :]


def test_open_turns_and_pending_approvals_are_never_pruned(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text(
        '[grant]\nrules = ["ask echo"]\n[retention]\nturns_days = 1\naudit_days = 1\n'
    )
    assert inside("call", "echo", "message=hi").code == Exit.WAITING
    grow_old(tmp_path / ".toolwire")
    changed(
        tmp_path / ".toolwire",
        "DROP TRIGGER audit_is_never_changed",
        f"UPDATE audit SET at = at - {40 * DAY_S}, digest = ''",
    )

    said = inside("store", "prune", "--json").json
    [asked] = inside("approvals", "--json").json

    assert (said["turns"], said["audit_rows"]) == (0, 0)
    assert inside("approve", asked["id"]).code == Exit.DONE
    assert "hi" in inside("call", "--resume", asked["turn_id"]).out


def test_a_pruned_audit_log_proves_the_rest_and_a_signed_cut(inside: Inside, home: Path, tmp_path: Path) -> None:
    inside("audit", "checkpoint", "--to", "early.jsonl")
    for number in range(3):
        inside("call", "echo", f"message={number}")
    inside("audit", "checkpoint", "--to", "late.jsonl")
    settings(tmp_path, "audit_mb = 0.0007")
    head = inside("audit", "verify", "--json").json["head"]

    said = inside("store", "prune", "--json").json
    ran = inside("audit", "verify", "--json")

    assert said["audit_rows"] > 6
    assert (ran.code, ran.json["whole"], ran.json["dropped"]) == (Exit.DONE, True, said["audit_rows"])
    assert inside("audit", "verify", "--checkpoints", "late.jsonl").code == Exit.DONE
    assert inside("audit", "verify", "--checkpoints", "early.jsonl").code == Exit.DONE
    inside("call", "echo", "message=more")
    inside("store", "prune")
    assert inside("audit", "verify").code == Exit.DONE
    assert inside("audit", "verify", "--json").json["head"] != head


def test_a_log_that_was_cut_from_outside_is_not_whole(inside: Inside, home: Path) -> None:
    """A cut that is not signed with the user's key is told, however well the rest fits."""
    changed(
        home,
        "INSERT INTO audit_cuts SELECT seq, digest, at, 'forged' FROM audit WHERE seq = 2",
        "DELETE FROM audit WHERE seq <= 2",
    )

    ran = inside("audit", "verify")

    assert ran.code == Exit.FAILED
    assert "not signed" in ran.err


def test_rows_of_the_log_cannot_be_deleted_without_a_cut(home: Path) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="never cut"):
        changed(home, "DELETE FROM audit WHERE seq = 1")


def test_a_log_that_is_not_whole_is_not_pruned(inside: Inside, home: Path, tmp_path: Path) -> None:
    settings(tmp_path, "audit_mb = 0.0007")
    changed(home, "DROP TRIGGER audit_is_never_changed", "UPDATE audit SET tool = 'other' WHERE seq = 2")

    ran = inside("store", "prune")

    assert ran.code != Exit.DONE
    assert "row 2" in ran.err
    assert counted(home, "audit") == 6


def test_staging_files_unnamed_bodies_and_old_logs_are_swept(inside: Inside, home: Path, tmp_path: Path) -> None:
    old = time.time() - 8 * DAY_S
    staging, shelf = home / "artifacts" / "new-0123", home / "artifacts" / "ab"
    shelf.mkdir(parents=True)
    body, young = shelf / ("c" * 62), shelf / ("d" * 62)
    log = home / "logs" / "audit-2020-01-01.jsonl"
    for path in (staging, body, young, log):
        path.write_bytes(b"x")
    for path in (staging, body, log):
        os.utime(path, (old, old))

    said = inside("store", "prune", "--json").json

    assert (said["staging_files"], said["bodies"], said["body_bytes"]) == (1, 1, 1)
    assert [path.exists() for path in (staging, body, young)] == [False, False, True]
    assert not log.exists()


def test_vacuum_gives_space_back(inside: Inside, home: Path, tmp_path: Path) -> None:
    settings(tmp_path, "turns_days = 30")
    for _ in range(5):
        inside("call", "echo", "message=" + "x" * 60_000)
    grow_old(home)
    inside("store", "prune")
    connection = sqlite3.connect(home / "store.db")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    before = (home / "store.db").stat().st_size

    ran = inside("store", "vacuum")

    assert ran.code == Exit.DONE
    assert (home / "store.db").stat().st_size < before / 2


def test_a_backup_opens_elsewhere_with_everything(inside: Inside, home: Path, tmp_path: Path) -> None:
    (home / "artifacts" / "ab").mkdir(parents=True)
    (home / "artifacts" / "ab" / ("c" * 62)).write_bytes(b"body")

    ran = inside("store", "backup", "copy/.toolwire")

    assert ran.code == Exit.DONE, ran.err
    copy = tmp_path / "copy" / ".toolwire"
    assert (copy / "artifacts" / "ab" / ("c" * 62)).read_bytes() == b"body"
    assert len(inside("logs", "--home", str(copy), "--json").json) == 6
    assert inside("audit", "verify", "--home", str(copy)).code == Exit.DONE
    assert inside("call", "echo", "message=more", "--home", str(copy)).code == Exit.DONE
    assert (counted(copy, "turns"), counted(home, "turns")) == (4, 3)


def test_the_command_after_a_restored_backup_goes_on_with_its_turns(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[grant]\nrules = ["ask echo"]\n')
    assert inside("call", "echo", "message=hi").code == Exit.WAITING
    [asked] = inside("approvals", "--json").json
    assert inside("store", "backup", "a copy").code == Exit.DONE

    told = inside("store", "restored", "--home", "a copy").err
    assert inside("approve", asked["id"], "--home", "a copy").code == Exit.DONE
    ran = inside(*shlex.split(told.split("`")[1])[1:], "--once")

    assert f"{asked['turn_id']} ended" in ran.out + ran.err
    assert inside("store", "restored", "--home", "a copy").err == "Turns that have not ended: 0.\n"


def test_a_backup_overwrites_nothing(inside: Inside, home: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine.txt").write_text("mine")

    ran = inside("store", "backup", "copy")

    assert ran.code != Exit.DONE
    assert "not empty" in ran.err


@pytest.mark.parametrize("words", [("prune",), ("vacuum",), ("backup", "copy")])
def test_without_a_store_that_is_said(inside: Inside, words: tuple[str, ...]) -> None:
    assert inside("store", *words).code == Exit.NOT_FOUND


def test_ordinary_commands_prune_by_themselves(inside: Inside, home: Path, tmp_path: Path) -> None:
    grow_old(home)
    settings(tmp_path, "turns_days = 30")
    before = ids(home)

    for _ in range(30):  # a command that ends too early leaves it to a later one
        assert inside("call", "echo", "message=new").code == Exit.DONE
        if time.time() - (home / "pruned").stat().st_mtime < DAY_S / 2:
            break
        (home / "pruned").unlink()

    assert not set(before) & set(ids(home))
    assert inside("audit", "verify").code == Exit.DONE


def test_commands_that_only_look_prune_nothing(inside: Inside, home: Path, tmp_path: Path) -> None:
    grow_old(home)
    settings(tmp_path, "turns_days = 30")

    assert inside("status").code == inside("logs").code == Exit.DONE

    assert len(ids(home)) == 3
    assert not (home / "pruned").exists()
