"""A workspace holds what it may and no more, whoever writes there; what is left open is said where it is."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import inside
from toolwire import Grant, MemoryStore, Tier, Toolbox, ToolCall
from toolwire.execute.quota import QuotaExec, QuotaFiles, ShareExec, share_of
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.used_bytes import used_bytes
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.operations import Command, Listener, Ran, shell
from toolwire.protocol.turns import Turn
from toolwire.toolbox import LocalFiles, edit_tool, write_tool

__all__ = ["inside"]
MIB = 1024 * 1024


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def ran(workspace: Path, text: str, most: int = MIB, **more: Any) -> Ran:
    async with asyncio.timeout(60):
        box = local_sandbox()
        return await QuotaExec(box, most, engine=box.choice).run(Command(shell(text), str(workspace), **more))


async def test_one_file_grows_no_further_than_there_is_room(workspace: Path) -> None:
    (workspace / "old").write_bytes(b"x" * (MIB // 2))
    ended = await ran(workspace, "exec head -c 5000000 /dev/zero > big")
    assert ended.limit == "workspace"
    assert used_bytes(str(workspace), 10 * MIB) <= MIB + 8192


async def test_a_command_that_writes_file_after_file_is_ended(workspace: Path) -> None:
    text = "echo begun; i=0; while :; do i=$((i+1)); head -c 65536 /dev/zero > f$i; done"
    ended = await ran(workspace, text)
    assert (ended.limit, ended.exit_code, ended.engine) == ("workspace", None, "bubblewrap")
    assert ended.stdout.text == "begun\n"
    assert "the workspace holds more than the 1,048,576 bytes that it may" in ended.stderr.text
    before = names(workspace)
    await ran(workspace, "ls", writable=False)
    assert names(workspace) == before, "nothing of it goes on"


async def test_a_full_workspace_takes_nothing_more_until_something_is_removed(workspace: Path) -> None:
    (workspace / "old").write_bytes(b"x" * (2 * MIB))
    refused = await ran(workspace, "exec dd if=/dev/zero of=new bs=1k count=1 status=none")
    assert refused.limit == "workspace"
    assert (workspace / "new").stat().st_size == 0
    assert (await ran(workspace, "rm old new")).exit_code == 0
    assert (await ran(workspace, "echo tea > new && cat new")).stdout.text == "tea\n"


async def test_what_is_over_when_a_command_has_ended_by_itself_is_told(workspace: Path) -> None:
    box = local_sandbox()
    ended = asyncio.Event()

    class Noticed:
        """The sandbox, and when a command in it has ended."""

        async def run(self, command: Command, listen: Listener | None = None) -> Ran:
            try:
                return await box.run(command, listen)
            finally:
                ended.set()

    def seen_afterwards(folder: str, enough: int) -> int:
        return used_bytes(folder, enough) if ended.is_set() else 0

    quota = QuotaExec(Noticed(), MIB, measure=seen_afterwards)
    text = "for i in 1 2 3 4; do head -c 400000 /dev/zero > f$i; done"
    async with asyncio.timeout(60):
        done = await quota.run(Command(shell(text), str(workspace)))
    assert (done.exit_code, done.limit) == (0, "")
    assert "[full: the workspace holds more" in done.stderr.text


async def test_what_cannot_write_is_not_measured(workspace: Path) -> None:
    def never(folder: str, enough: int) -> int:
        raise AssertionError(folder, enough)

    quota = QuotaExec(local_sandbox(), 1, measure=never)
    assert (await quota.run(Command(shell("echo hi"), str(workspace), writable=False))).stdout.text == "hi\n"
    assert (await quota.run(Command(shell("echo hi")))).stdout.text == "hi\n"


async def test_a_caller_who_gives_up_leaves_nothing_running(workspace: Path) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await QuotaExec(local_sandbox(), MIB).run(Command(shell("sleep 60; echo late > late"), str(workspace)))
    assert not (workspace / "late").exists()


def test_links_and_holes_are_counted_for_what_they_take(workspace: Path) -> None:
    (workspace / "a").write_bytes(b"x" * 8192)
    os.link(workspace / "a", workspace / "b")
    (workspace / "out").symlink_to("/usr")
    with (workspace / "hole").open("wb") as hole:
        hole.truncate(100 * MIB)
    (workspace / ".toolwire").mkdir()
    (workspace / ".toolwire" / "store.db").write_bytes(b"x" * MIB)
    assert used_bytes(str(workspace), 10 * MIB) == 8192
    assert used_bytes(str(workspace / "missing"), MIB) == 0


def test_what_lies_deeper_than_any_path_can_say_is_counted(workspace: Path) -> None:
    here = os.open(workspace, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 200, dir_fd=here)
        above, here = here, os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(above)
    with os.fdopen(os.open("big", os.O_CREAT | os.O_WRONLY, dir_fd=here), "wb") as big:
        big.write(b"x" * MIB)
    os.close(here)
    assert used_bytes(str(workspace), 10 * MIB) >= MIB


def test_names_that_take_no_block_are_counted_when_there_are_many(workspace: Path) -> None:
    for number in range(1500):
        (workspace / str(number)).touch()
    assert used_bytes(str(workspace), 10 * MIB) == 500 * 512
    assert used_bytes(str(workspace), 512) == 1024, "no more is looked at than has to be"


def test_what_its_own_user_has_closed_counts_as_too_much() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "closed").mkdir(mode=0)
        others = os.geteuid() or 60_001  # to root nothing is closed
        for path in (folder, f"{folder}/closed"):
            os.chown(path, others, -1)
        was = os.geteuid()
        os.seteuid(others)
        try:
            assert used_bytes(folder, MIB) > MIB
        finally:
            os.seteuid(was)


async def test_many_small_files_are_noticed_by_what_is_free_on_the_disk(workspace: Path) -> None:
    """No look is due for an hour; the disk says that one is needed."""
    box = local_sandbox()
    text = "i=0; while :; do i=$((i+1)); head -c 4096 /dev/zero > f$i; done"
    async with asyncio.timeout(60):
        ended = await QuotaExec(box, MIB, look_every_s=3600).run(Command(shell(text), str(workspace)))
    assert ended.limit == "workspace"


async def test_a_command_that_takes_its_time_may_make_room_in_a_full_workspace(workspace: Path) -> None:
    for name in ("a", "b", "c"):
        (workspace / name).write_bytes(b"x" * MIB)
    made = await ran(workspace, "sleep 0.6; rm a b c; sleep 0.4; echo done")
    assert (made.stdout.text, made.limit) == ("done\n", "")


async def written(workspace: Path, name: str, **arguments: Any) -> ToolResult:
    files = QuotaFiles(LocalFiles(), 16_384)
    grant = Grant(Tier.RUN, frozenset({"file_read", "file_write"}), (str(workspace),), confirmed=frozenset({"*"}))
    runtime = Runtime(Toolbox(write_tool(files), edit_tool(files)), MemoryStore())
    return await runtime.execute(ToolCall(name, arguments, id="c"), Turn("t", grant=grant))


async def test_file_tools_keep_to_it_and_may_always_make_less(workspace: Path) -> None:
    assert (await written(workspace, "write", path="a.txt", content="x" * 8000)).ok
    refused = await written(workspace, "write", path="b.txt", content="x" * 12_000)
    assert "the workspace may hold 16,384 bytes; remove something first" in refused.text
    assert not (workspace / "b.txt").exists()
    (workspace / "c.txt").write_text("y" * 100_000)
    assert not (await written(workspace, "edit", path="a.txt", old_text="x" * 8000, new_text="z" * 8001)).ok
    assert (await written(workspace, "write", path="c.txt", content="small")).ok


def test_the_settings_say_how_much(inside: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "toolwire.toml").write_text(
        '[tools]\ngroups = ["shell", "coding"]\nworkspace_bytes = 20000\n[grant]\ntier = "run"\nroots = ["work"]\n'
        'permissions = ["shell", "file_write"]\nconfirmed = ["*"]\n'
    )
    over = inside("call", "bash", "command=exec head -c 90000 /dev/zero > big", "--json").json
    assert over["structured"]["limit"] == "workspace"
    refused = inside("call", "write", "path=a.txt", f"content={'x' * 30_000}", "--json").json
    assert "may hold 20,000 bytes" in refused["error"]["message"]


FILLS = {
    "file after file": "i=0; while :; do i=$((i+1)); head -c 8M /dev/zero > f$i; done",
    "files without a name": 'i=10; while :; do i=$((i+1)); eval "exec $i>u; rm u; head -c 8M /dev/zero >&$i"; done',
    "one file": "exec head -c 900M /dev/zero > big",
    "in the background": "(while :; do i=$((i+1)); head -c 8M /dev/zero > f$i; done) & wait",
}


async def shared(workspace: Path, text: str, share: float | None) -> Ran:
    async with asyncio.timeout(60):
        box = local_sandbox()
        ops = box if share is None else ShareExec(box, share, engine=box.choice)
        return await ops.run(Command(shell(text), str(workspace)))


@pytest.mark.parametrize("fill", FILLS)
async def test_T29_a_command_takes_its_share_of_the_disk_and_no_more(workspace: Path, fill: str) -> None:
    """So small a share is the least that there always is."""
    ended = await shared(workspace, FILLS[fill], 1e-9)

    assert ended.limit == "disk"
    assert used_bytes(str(workspace), 2048 * MIB) < 1024 * MIB
    before = names(workspace) - {".git"}
    await shared(workspace, "ls", None)
    assert names(workspace) - {".git"} == before, "nothing of it goes on"


async def test_T29_control_without_a_share_a_command_takes_what_it_wants(workspace: Path) -> None:
    ended = await shared(workspace, "for i in 1 2 3 4 5; do head -c 40M /dev/zero > f$i; done", None)

    assert (ended.limit, ended.exit_code) == ("", 0)
    assert used_bytes(str(workspace), 400 * MIB) >= 200 * MIB


async def test_ordinary_work_is_within_the_usual_share(workspace: Path) -> None:
    ended = await shared(workspace, "head -c 20M /dev/zero > built; ls", 0.1)

    assert (ended.limit, ended.exit_code, ended.stdout.text) == ("", 0, "built\n")


def test_some_room_is_always_left_and_some_always_given() -> None:
    assert share_of(1000 * MIB, 0.1) == 100 * MIB
    assert share_of(200 * MIB, 0.1) == 64 * MIB
    assert share_of(20 * MIB, 0.1) == 10 * MIB


def test_T29_the_usual_settings_have_a_share_and_a_project_cannot_drop_it(inside: Any, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    settings = '[tools]\ngroups = ["shell"]\n{}[grant]\ntier = "run"\nroots = ["work"]\npermissions = ["shell"]\n'
    (tmp_path / "toolwire.toml").write_text(settings.format("disk_share = 0.000000001\n") + 'confirmed = ["*"]\n')
    over = inside("call", "bash", f"command={FILLS['file after file']}", "--json").json
    told = [row for row in inside("doctor", "--json").json["findings"] if row["what"] == "disk share"]

    assert over["structured"]["limit"] == "disk"
    assert told[0]["state"] == "ok"
    assert "64 of" in told[0]["said"]
