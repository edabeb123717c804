"""Hostile text, hostile repositories and hostile amounts, in the box as everyone gets it."""

import asyncio
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.conftest import Open, git, names
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.operations import Command, ExecLimits, shell

OBFUSCATED = (
    "touch {marker}",
    "$(printf touch) {marker}",
    "t''ou\"\"ch {marker}",
    "to\\uch {marker}",
    "touch${{IFS}}{marker}",
    "X=$'\\x74ouch'; $X {marker}",
    "eval $(echo dG91Y2gK | base64 -d) {marker}",
    "echo 'touch {marker}' | bash",
    "bash <(echo 'touch {marker}')",
    "env -S 'touch {marker}'",
    "xargs touch <<< {marker}",
    "find . -maxdepth 0 -exec touch {marker} \\;",
    'perl -e \'open F, ">", "{marker}"\'',
    "awk 'BEGIN {{ print 1 > \"{marker}\" }}'",
    "cp /dev/null {marker}",
    ": > {marker}",
    "cd $(dirname {marker}) && touch $(basename {marker})",
    "ln -sfn $(dirname {marker}) out && touch out/$(basename {marker})",
    "(exec -a true touch {marker})",
    "alias a=touch; shopt -s expand_aliases; eval 'a {marker}'",
    'f() {{ command touch "$@"; }}; f {marker}',
    "nohup setsid touch {marker}",
    "sh -c 'sh -c \"touch {marker}\"'",
    "tee {marker} < /dev/null",
    "dd if=/dev/null of={marker}",
)
WRAPPED = ("{0}", "true; " * 51 + "{0}", "{{ {0}; }} &\nwait", "if true; then {0}\nfi")


@pytest.mark.control("T26")
@pytest.mark.parametrize("wrapped", WRAPPED, ids=["plain", "after 51 commands", "in the background", "in a condition"])
async def test_T26_no_spelling_of_a_command_leads_out_of_the_box(
    box: Sandbox, workspace: Path, tmp_path: Path, wrapped: str
) -> None:
    """Nobody reads the text for danger: a hundred spellings of the same wish meet the same wall."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o777)
    spellings = [wrapped.format(text.format(marker=outside / str(n))) for n, text in enumerate(OBFUSCATED)]
    script = "\n".join(f"(\n{spelling}\n)" for spelling in spellings)

    await box.run(Command(shell(script), str(workspace)))
    assert names(outside) == []

    await Open().run(Command(shell(script), str(workspace)))
    assert len(names(outside)) == len(OBFUSCATED), "the control: without a box every spelling works"


@pytest.mark.parametrize("setting", ["core.fsmonitor", "diff.external", "core.pager", "filter.x.clean"])
async def test_T34_what_a_hostile_repository_runs_runs_in_the_box(
    box: Sandbox, workspace: Path, tmp_path: Path, setting: str
) -> None:
    """Git obeys the repository's configuration; its programs find nothing of the host to touch."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o777)
    script = workspace / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {outside}/$1escaped\ntouch $(dirname $0)/ran\ncat\n")
    script.chmod(0o755)
    here = ("-C", str(workspace), "-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x"), ("config", setting, "./evil.sh")):
        git(*here, *words)
    (workspace / ".gitattributes").write_text("* filter=x\n")
    script.write_text(script.read_text() + "\n")
    look = Command(shell("GIT_PAGER= git status; git --paginate diff; true"), str(workspace))

    await box.run(look)
    assert names(outside) == []


async def test_T34_control_without_a_box_its_programs_reach_the_host(workspace: Path, tmp_path: Path) -> None:
    marker = tmp_path / "escaped"
    git("init", "-q", str(workspace))
    git("-C", str(workspace), "config", "core.fsmonitor", f"touch {marker}; false")

    await Open().run(Command(("/usr/bin/git", "status"), str(workspace)))

    assert marker.exists()


@pytest.mark.parametrize("name", ["commondir", "config.worktree"])
async def test_T23_a_pointer_to_another_git_configuration_cannot_be_made_in_a_box(
    box: Sandbox, workspace: Path, name: str
) -> None:
    git("init", "-q", str(workspace))

    ran = await box.run(Command(shell(f"echo ../evil > .git/{name} && echo made"), str(workspace)))

    assert ran.stdout.text == ""
    assert name not in names(workspace / ".git")


async def test_T29_a_gibibyte_of_output_costs_at_most_32_mib_of_memory(workspace: Path) -> None:
    script = (
        "import asyncio, resource, sys\n"
        "from toolwire.execute.sandbox.engines import local_sandbox\n"
        "from toolwire.protocol.operations import Command, ExecLimits\n"
        "async def main():\n"
        "    box = local_sandbox()\n"
        "    await box.run(Command(('/bin/true',), sys.argv[1]))\n"
        "    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    words = ('/usr/bin/head', '-c', str(2**30), '/dev/zero')\n"
        "    ran = await box.run(Command(words, sys.argv[1], limits=ExecLimits(wall_s=200)))\n"
        "    print(ran.stdout.size, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
        "asyncio.run(main())\n"
    )
    told = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script, str(workspace)], capture_output=True, text=True, check=True
    )

    size, grown_mib = map(int, told.stdout.split())
    assert size == 2**30
    assert grown_mib <= 32


async def test_T30_a_bomb_of_200_busy_processes_is_gone_when_it_is_stopped(box: Sandbox, workspace: Path) -> None:
    busy = 'setpgrp; $SIG{TERM} = "IGNORE"; 1 while 1'
    bomb = f"perl -e 'for (1..200) {{ if (!fork) {{ {busy} }} }} $| = 1; print 1; sleep 99'"
    up = asyncio.Event()
    command = Command(shell(bomb), str(workspace), limits=ExecLimits(60, processes=220))
    running = asyncio.create_task(box.run(command, lambda _stream, _piece: up.set()))
    async with asyncio.timeout(30):
        await up.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert box.healthy, "its group could not be removed, so somebody was still in it"


async def test_a_caller_who_gives_up_while_a_box_starts_leaves_none_behind(box: Sandbox, workspace: Path) -> None:
    for _ in range(5):
        running = asyncio.create_task(box.run(Command(shell("sleep 100"), str(workspace))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    await box.run(Command(("/bin/true",), str(workspace)))
    assert names(workspace) == []


async def test_a_folder_is_lent_wherever_it_lies_and_cannot_be_changed(
    box: Sandbox, workspace: Path, tmp_path: Path
) -> None:
    private = tmp_path / "private" / "lent"
    private.mkdir(parents=True)
    private.parent.chmod(0o700)
    (private / "tool").write_text("#!/bin/sh\necho lent\n")
    (private / "tool").chmod(0o700)
    text = f"{private}/tool; touch {private}/made; ls {private.parent}"

    ran = await box.run(Command(shell(text), str(workspace), readable=(str(private),)))

    assert ran.stdout.text == "lent\nlent\n"
    assert names(private) == ["tool"]


def test_T30_a_box_dies_with_the_process_that_opened_it_even_by_kill_9(workspace: Path) -> None:
    """A daemon in the box holds a pipe open; the pipe tells when the last holder is gone."""
    script = (
        "import asyncio, sys\n"
        "from toolwire.execute.sandbox.engines import local_sandbox\n"
        "from toolwire.protocol.operations import Command, shell\n"
        "text = 'mkfifo pipe; exec 3<> pipe; (setsid nohup sleep 100 &); echo up; sleep 100'\n"
        "said = lambda _stream, piece: print('up', flush=True)\n"
        "asyncio.run(local_sandbox().run(Command(shell(text), sys.argv[1]), said))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(workspace)], stdout=subprocess.PIPE, text=True) as opener:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "up\n"
        reader = os.open(workspace / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        held = select.poll()
        held.register(reader, select.POLLIN)
        assert held.poll(0) == []
        opener.kill()

    assert held.poll(5000) == [(reader, select.POLLHUP)]
    os.close(reader)
