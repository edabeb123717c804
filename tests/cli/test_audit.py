"""`toolwire audit`: a log that is whole, one that is not, and checkpoints."""

import sqlite3
from pathlib import Path

from tests.full_disk import full_disk
from toolwire.cli.entry.exits import Exit

from .conftest import Inside


def test_a_log_is_verified_against_checkpoints_kept_elsewhere(inside: Inside, tmp_path: Path) -> None:
    inside("call", "echo", "message=hi")
    assert inside("audit", "checkpoint", "--to", "kept.jsonl").code == Exit.DONE
    inside("call", "echo", "message=ho")
    ran = inside("audit", "verify", "--checkpoints", "kept.jsonl", "--json")
    assert (ran.code, ran.json["whole"], ran.json["rows"], ran.json["checkpoints"]) == (Exit.DONE, True, 4, 1)
    told = inside("audit", "verify", "--checkpoints", "kept.jsonl").err
    assert told.splitlines()[-1] == "It fits 1 checkpoint."

    connection = sqlite3.connect(tmp_path / ".toolwire" / "store.db")
    connection.execute("DROP TRIGGER audit_is_never_cut")
    connection.execute("DELETE FROM audit WHERE seq > 1")
    connection.commit()
    connection.close()
    assert inside("audit", "verify").code == Exit.DONE
    cut = inside("audit", "verify", "--checkpoints", "kept.jsonl")
    assert cut.code == Exit.FAILED
    assert "its tail was cut" in cut.err


def test_what_cannot_be_verified_is_said(inside: Inside, tmp_path: Path) -> None:
    assert inside("audit", "verify").code == Exit.NOT_FOUND
    inside("call", "echo", "message=hi")
    (tmp_path / "odd.jsonl").write_text("[]\n", encoding="utf-8")
    odd = inside("audit", "verify", "--checkpoints", "odd.jsonl")
    assert (odd.code, "no checkpoint" in odd.err) == (Exit.USAGE, True)
    assert inside("audit", "verify", "--checkpoints", "lost.jsonl").code == Exit.USAGE
    assert inside("audit", "checkpoint", "--to", "lost/kept.jsonl").code == Exit.USAGE


def test_a_full_disk_leaves_no_half_of_a_checkpoint(inside: Inside) -> None:
    """A file grows by pages, so the line that has no room is nearly always written in part."""
    inside("call", "echo", "message=hi")
    with full_disk() as disk:
        kept = str(disk.folder / "kept.jsonl")
        disk.make_room()
        written = 0
        while (ran := inside("audit", "checkpoint", "--to", kept)).code == Exit.DONE:
            written += 1
            disk.fill()
        verified = inside("audit", "verify", "--checkpoints", kept, "--json")
    assert (ran.code, "No space left on device" in ran.err) == (Exit.USAGE, True)
    assert (verified.code, verified.json["checkpoints"]) == (Exit.DONE, written)


def test_a_full_device_that_cannot_be_cut_is_said_to_be_full(inside: Inside) -> None:
    inside("call", "echo", "message=hi")
    ran = inside("audit", "checkpoint", "--to", "/dev/full")
    assert (ran.code, "/dev/full cannot be written: No space left on device" in ran.err) == (Exit.USAGE, True)
