"""Names that other programs obey, in boxes of every engine: sealed where they are, held back where they are new."""

import asyncio
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests import forked
from tests.sandbox.conftest import ENGINES, Open, git, names
from toolwire.execute.sandbox.bubblewrap import Bubblewrap
from toolwire.execute.sandbox.engines import cgroups, local_sandbox
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.operations import Command, ExecOps, Ran, shell

OBEYED = """
.vscode/tasks.json sub/.vscode/tasks.json .idea/workspace.xml .devcontainer/devcontainer.json .zed/tasks.json
.windsurf/hooks.json .fleet/run.json .claude/settings.json sub/.claude/settings.json .cursor/mcp.json
a/b/.cursor/mcp.json
.codex/config.toml .gemini/settings.json .mcp.json sub/.mcp.json .envrc sub/deeper/.envrc .husky/pre-commit
.githooks/pre-push .pre-commit-config.yaml .gitlab-ci.yml .github/workflows/ci.yml .github/actions/a/action.yml
.circleci/config.yml Jenkinsfile azure-pipelines.yml .npmrc packages/app/.npmrc .yarnrc.yml pip.conf .cargo/config.toml
sitecustomize.py .venv/lib/python3.12/site-packages/usercustomize.py .hg/hgrc toolwire.toml sub/toolwire.toml .bashrc
.VSCode/tasks.json .Envrc .dir-locals.el .clinerules/rules.md .git-hooks-are-not/../.envrc.local/../.direnv/x
own.code-workspace sub/Own.Code-Workspace .Rprofile .irbrc .pryrc .ghci .pdbrc .gdbinit .lldbinit .octaverc .jvmopts
.mvn/extensions.xml .shadowenv.d/a.lisp .autoenv .autoenv.zsh bunfig.toml .qwen/settings.json .trae/mcp.json
.junie/mcp.json .augment/settings.json .crush.json crush.json .factory/mcp.json
""".split()
ORDINARY = """
.gitignore .editorconfig .env.example Makefile package.json src/vscode/tasks.json github/workflows/ci.yml setup.cfg
.github/ISSUE_TEMPLATE/bug.md .eslintrc.json docs/npmrc config.toml .python-version tests/conftest.py .venv/bin/python
code-workspace own.code-workspace.md pom.xml mvn/extensions.xml bun.lock irbrc factory/settings.json
""".split()


def writing(paths: list[str]) -> str:
    folders = " ".join(sorted({str(Path(path).parent) for path in paths}))
    return f"mkdir -p {folders}\n" + "\n".join(f"echo planted > {path}" for path in paths)


def run(ops: ExecOps, workspace: Path, text: str) -> "asyncio.Future[Ran]":
    return asyncio.ensure_future(ops.run(Command(shell(text), str(workspace))))


def below(workspace: Path) -> list[Path]:
    return sorted(workspace.rglob("*"))


def git_status(folder: Path) -> str:
    words = ["git", "-C", str(folder), "status", "--short", "-uall"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def planted(workspace: Path) -> list[str]:
    return [path for path in OBEYED if (workspace / path).exists()]


@pytest.mark.parametrize("engine", ENGINES)
async def test_T23_what_a_command_plants_is_held_back_and_told(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    ran = await run(boxed_by(engine), workspace, writing([*OBEYED, *ORDINARY]))

    assert ran.exit_code == 0
    assert planted(workspace) == []
    assert [path for path in ORDINARY if not (workspace / path).exists()] == []
    assert any("so toolwire moved it to" in note and "`toolwire release " in note for note in ran.notes)
    assert any("`toolwire release` lists them" in note for note in ran.notes)
    kept = [path for path in below(workspace) if path.name == "tasks.json" and ".held-back-" in str(path)]
    assert {path.read_text() for path in kept} == {"planted\n"}, "nothing is lost"


async def test_T23_control_where_nothing_is_protected_it_stays(workspace: Path) -> None:
    unprotected = Sandbox({"bubblewrap": Bubblewrap(cgroups(), protected=())})

    await run(unprotected, workspace, writing(OBEYED))

    assert planted(workspace) == OBEYED


WAYS = {
    "moved in": "mkdir x && echo planted > x/tasks.json && mv x .vscode",
    "linked": "mkdir x && echo planted > x/tasks.json && ln -s x .vscode",
    "in a folder that was moved": "mkdir -p x/.vscode && echo planted > x/.vscode/tasks.json && mv x y",
    "with times that were set": "mkdir .vscode && echo planted > .vscode/tasks.json && touch -d @1 .vscode .",
    "behind modes": "mkdir -p s/.vscode && echo x > s/.vscode/tasks.json && chmod 0 s/.vscode && chmod 111 s",
    "unpacked": "mkdir .vscode && touch .vscode/tasks.json && tar cf t .vscode && rm -r .vscode && tar xf t",
    "renamed from a document": "echo x > AGENTS.md; mv documents/AGENTS.md .vscode",
    "renamed from another folder": "mv .svn .vscode",
    "a link that was moved": "mkdir s && echo x > s/missing && mv documents/.vscode s/.vscode",
    "deep": "d=$(printf 'd/%.0s' {1..60}) && mkdir -p $d/.vscode && touch $d/.vscode/tasks.json",
}


@pytest.mark.parametrize("way", WAYS)
async def test_T23_it_is_held_back_however_it_comes_there(box: Sandbox, workspace: Path, way: str) -> None:
    (workspace / "documents").mkdir()
    (workspace / ".svn").mkdir()
    (workspace / "documents/AGENTS.md").write_text("ours\n")
    (workspace / "documents/.vscode").symlink_to("missing")
    await run(box, workspace, "true")

    ran = await run(box, workspace, WAYS[way])

    assert ran.exit_code == 0, ran.stderr.text
    assert not [path for path in below(workspace) if path.name == ".vscode" and path.parent.name != "documents"]
    assert [note for note in ran.notes if "held-back" in note]


@pytest.mark.parametrize("engine", ENGINES)
async def test_T23_what_is_there_can_be_read_and_not_changed_at_any_depth(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    app = workspace / "packages/app"
    (app / ".vscode").mkdir(parents=True)
    (app / ".npmrc").write_text("registry=ours\n")
    (app / ".vscode/settings.json").write_text("{}\n")
    (workspace / ".github/workflows").mkdir(parents=True)
    text = (
        "cat packages/app/.npmrc; cd packages/app; echo x >> .npmrc; rm -rf .npmrc .vscode; mv .vscode old; "
        "echo x > .vscode/tasks.json; mv .npmrc n; cp /dev/null .npmrc; cd ../..; mv .github g; "
        "echo x > .github/workflows/a"
    )

    ran = await run(boxed_by(engine), workspace, text)

    assert ran.stdout.text == "registry=ours\n"
    assert (app / ".npmrc").read_text() == "registry=ours\n"
    assert names(app / ".vscode") == ["settings.json"]
    assert names(workspace / ".github/workflows") == []
    for path in ("packages/app/.npmrc", "packages/app/.vscode", ".github/workflows"):
        assert any(f"toolwire protects '{path}'" in note for note in ran.notes), ran.notes


async def test_a_failure_that_has_nothing_to_do_with_it_gets_no_note(box: Sandbox, workspace: Path) -> None:
    (workspace / ".npmrc").write_text("x\n")

    ran = await run(box, workspace, "cat missing; echo x > /usr/x; cat .npmrc; false")

    assert ran.notes == ()


async def test_a_folder_with_protected_names_in_it_can_be_moved_and_stays_whole(box: Sandbox, workspace: Path) -> None:
    (workspace / "old").mkdir()
    (workspace / "old/.npmrc").write_text("ours\n")

    ran = await run(box, workspace, "mv old new && cat new/.npmrc")

    assert (ran.exit_code, ran.stdout.text, ran.notes) == (0, "ours\n", ())
    assert (workspace / "new/.npmrc").read_text() == "ours\n"


async def test_T23_a_document_for_agents_is_told_and_stays(box: Sandbox, workspace: Path) -> None:
    (workspace / "CLAUDE.md").write_text("ours\n")
    (workspace / "GEMINI.md").write_text("ours\n")

    ran = await run(box, workspace, "echo obey > AGENTS.md; echo obey >> CLAUDE.md; cat GEMINI.md")

    assert names(workspace) == ["AGENTS.md", "CLAUDE.md", "GEMINI.md"]
    assert [("made" in note, "changed" in note) for note in ran.notes] == [(True, False), (False, True)]
    assert "'AGENTS.md'" in ran.notes[0]
    assert "'CLAUDE.md'" in ran.notes[1]


async def test_T23_what_a_running_command_plants_is_held_back_before_it_ends(box: Sandbox, workspace: Path) -> None:
    text = "mkdir .vscode; echo x > .vscode/tasks.json; while test -e .vscode; do sleep 0.05; done; echo gone"

    async with asyncio.timeout(25):
        ran = await run(box, workspace, text)

    assert ran.stdout.text == "gone\n"


async def test_T23_a_command_that_plants_again_and_again_is_ended(box: Sandbox, workspace: Path) -> None:
    async with asyncio.timeout(25):
        ran = await run(box, workspace, "while :; do mkdir -p .vscode; sleep 0.02; done")

    assert ran.limit == "repositories"
    assert not (workspace / ".vscode").exists()


@pytest.mark.parametrize("engine", ENGINES)
async def test_while_a_box_is_open_git_shows_nothing_of_ours_and_an_editor_can_make_its_folder(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    """The box is idle, so what appears is its user's, and stays."""
    git("init", "-q", str(workspace))
    opened = asyncio.Event()
    command = Command(shell("echo up; sleep 4"), str(workspace))
    running = asyncio.ensure_future(boxed_by(engine).run(command, lambda *_: opened.set()))
    async with asyncio.timeout(30):
        await opened.wait()
        assert await asyncio.to_thread(git_status, workspace) == ""
        while not running.done():  # what appears in the very moment in which the box still ran is held back, once
            with suppress(FileExistsError):  # `exist_ok` looks a second time, and it may be held back between the two
                (workspace / ".vscode").mkdir()
            await asyncio.sleep(0.02)
        ran = await running

    assert ran.exit_code == 0
    assert (workspace / ".vscode").is_dir()
    assert len(ran.notes) <= 1


async def make_while_idle(box: Sandbox, workspace: Path, then: str) -> Ran:
    """A box that idles for so long that a folder of its user is left alone, and then does something."""
    opened = asyncio.Event()
    command = Command(shell(f"echo up; sleep 4; {then}"), str(workspace))
    running = asyncio.ensure_future(box.run(command, lambda *_: opened.set()))
    async with asyncio.timeout(30):
        await opened.wait()
        while not running.done():  # what appears in the very moment in which the box still ran is held back, once
            if ".vscode" not in names(workspace):
                (workspace / ".vscode").mkdir()
                (workspace / ".vscode/settings.json").write_text("{}")
            await asyncio.sleep(0.02)
        return await running


async def test_T146_what_a_box_changes_in_a_folder_that_its_user_made_meanwhile_is_held_back(
    box: Sandbox, workspace: Path
) -> None:
    ran = await make_while_idle(box, workspace, "echo evil > .vscode/tasks.json")

    assert not (workspace / ".vscode/tasks.json").exists()
    assert [note for note in ran.notes if "'.vscode'" in note and "toolwire release" in note]


async def test_T146_control_what_it_leaves_as_it_is_stays(box: Sandbox, workspace: Path) -> None:
    await make_while_idle(box, workspace, "cat .vscode/settings.json")

    assert names(workspace / ".vscode") == ["settings.json"]


def test_T23_nothing_of_ours_is_seen_after_a_process_was_killed(workspace: Path) -> None:
    git("init", "-q", str(workspace))
    (workspace / "sub").mkdir()
    script = (
        "from toolwire.execute.sandbox.protected import guard; import os, sys; "
        "[guard(path) for path in sys.argv[1:]]; os.kill(os.getpid(), 9)"
    )
    forked.run_python("-c", script, str(workspace), str(workspace / "sub"))

    assert git_status(workspace / "sub") == git_status(workspace) == ""


def test_T23_what_a_box_planted_whose_process_was_killed_is_held_back_by_the_next(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    script = (
        "import asyncio, os, sys\n"
        "from toolwire.execute.sandbox.engines import local_sandbox\n"
        "from toolwire.protocol.operations import Command, shell\n"
        "text = 'mkdir sub/.vscode; echo x > .envrc; echo up; sleep 100'\n"
        "ended = lambda _stream, piece: os.kill(os.getpid(), 9)\n"
        "asyncio.run(local_sandbox().run(Command(shell(text), sys.argv[1]), ended))\n"
    )
    forked.run_python("-c", script, str(workspace))
    assert (workspace / ".envrc").exists()

    ran = asyncio.run(local_sandbox().run(Command(("/bin/true",), str(workspace))))

    assert not (workspace / ".envrc").exists()
    assert not (workspace / "sub/.vscode").exists()
    assert len([note for note in ran.notes if "toolwire release" in note]) == 2


LINKS = ("missing", "../outside", "/etc", "kept", ".")


@pytest.mark.parametrize("target", LINKS)
@pytest.mark.parametrize("name", [".envrc", ".claude", ".vscode", ".npmrc", "toolwire.toml"])
async def test_T23_a_users_link_with_such_a_name_does_not_stop_commands(
    box: Sandbox, workspace: Path, name: str, target: str
) -> None:
    (workspace / "kept").mkdir()
    (workspace / "kept/settings.json").write_text("ours\n")
    (workspace / name).symlink_to(target)
    text = f"echo evil > missing; echo evil > kept/settings.json; rm -f {name}; echo evil > {name}; echo done"

    for _ in range(2):
        ran = await run(box, workspace, text)
        assert ran.stdout.text == "done\n"

    assert str((workspace / name).readlink()) == target
    assert not (workspace / "missing").exists() or target != "missing"
    if target == "kept":
        assert (workspace / "kept/settings.json").read_text() == "ours\n"


@pytest.mark.parametrize("engine", ENGINES)
async def test_T23_a_link_that_a_command_makes_does_not_stop_later_commands(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    box = boxed_by(engine)
    await run(box, workspace, "ln -s x .envrc; ln -s /etc .claude; ln -s . .vscode; mkdir s; ln -s ../x s/.npmrc")

    assert (await run(box, workspace, "echo later")).stdout.text == "later\n"
    assert not [name for name in names(workspace) if name in {".envrc", ".claude", ".vscode"}]


def listening(path: Path) -> socket.socket:
    daemon = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        daemon.bind(f"/proc/self/fd/{folder}/{path.name}")  # the path of a socket may have 108 characters at most
    finally:
        os.close(folder)
    path.chmod(0o666)
    daemon.listen()
    return daemon


CONNECT = (
    "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); "
    "connect(S, pack_sockaddr_un(qq({path}))) or die qq({path}: $!)'"
)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("writable", [True, False])
async def test_T87_sockets_and_pipes_of_this_machine_are_out_of_reach_at_any_depth(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str, *, writable: bool
) -> None:
    places = ["d.sock", "a/b/d.sock", ".vscode/d.sock", ".git/fsmonitor.ipc", "node_modules/.cache/d.sock"]
    for place in places:
        (workspace / place).parent.mkdir(parents=True, exist_ok=True)
    daemons = [listening(workspace / place) for place in places]
    (workspace / "link.sock").symlink_to("d.sock")
    os.mkfifo(workspace / "a/pipe", 0o666)
    reader = os.open(workspace / "a/pipe", os.O_RDONLY | os.O_NONBLOCK)
    text = "\n".join(f"{CONNECT.format(path=place)} && echo {place}" for place in (*places, "link.sock"))
    text += "\ntimeout 1 bash -c 'echo x > a/pipe' && echo pipe; true"

    ran = await boxed_by(engine).run(Command(shell(text), str(workspace), writable=writable))

    assert ran.stdout.text == ""
    assert any("'d.sock'" in note or "'a/b/d.sock'" in note for note in ran.notes), ran.notes
    for daemon in daemons:
        daemon.close()
    os.close(reader)


async def test_T87_control_without_a_box_they_answer(workspace: Path) -> None:
    with listening(workspace / "d.sock"):
        ran = await Open().run(Command(shell(f"{CONNECT.format(path='d.sock')} && echo reached"), str(workspace)))

    assert ran.stdout.text == "reached\n"


@pytest.mark.parametrize("engine", ENGINES)
async def test_T87_a_socket_that_a_command_makes_works_and_its_remains_can_be_replaced(
    boxed_by: Callable[[str], Sandbox], workspace: Path, engine: str
) -> None:
    serve = (
        "perl -MSocket -e 'unlink qq(own); socket(S, AF_UNIX, SOCK_STREAM, 0); "
        "bind(S, pack_sockaddr_un(qq(own))) or die; listen(S, 1); socket(C, AF_UNIX, SOCK_STREAM, 0); "
        "connect(C, pack_sockaddr_un(qq(own))) and print qq(works)'"
    )
    box = boxed_by(engine)

    for _ in range(2):
        assert (await run(box, workspace, serve)).stdout.text == "works"


async def test_T87_a_live_socket_is_not_disturbed_by_being_looked_at(box: Sandbox, workspace: Path) -> None:
    with listening(workspace / "d.sock") as daemon:
        daemon.setblocking(False)
        await run(box, workspace, "true")
        with pytest.raises(BlockingIOError):
            daemon.accept()


@pytest.mark.parametrize("engine", ["bubblewrap", "none"])
def test_T23_what_is_planted_is_held_back_for_an_ordinary_user_too(engine: str) -> None:
    """Also behind modes that shut its owner out. Where only root can seal names, changes are told."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        workspace = Path(home, "workspace")
        (workspace / "pkg").mkdir(parents=True)
        (workspace / "pkg/.npmrc").write_text("ours\n")
        for path in (Path(home), workspace, *below(workspace)):
            os.chown(path, *([60_001] * 2 if os.geteuid() == 0 else [-1] * 2))
        text = f"{WAYS['behind modes']}; echo x > toolwire.toml; echo evil >> pkg/.npmrc; true"
        words = ["-m", "tests.sandbox.ordinary_user", str(60_001 if os.geteuid() == 0 else 0), engine, str(workspace)]
        done = forked.run_python(*words, text=text)
        done.check_returncode()
        told = json.loads(done.stdout)

        assert len(told["held"]) == 2, told
        assert not (workspace / "toolwire.toml").exists()
        assert not (workspace / "s/.vscode").exists()
        assert any("'pkg/.npmrc'" in note for note in told["notes"])
        if engine == "bubblewrap":
            assert (workspace / "pkg/.npmrc").read_text() == "ours\n"


MOUNTS = "cat /proc/mounts /proc/*/mount* /proc/*/task/*/mount* 2>/dev/null; true"


async def test_T88_no_path_of_the_host_is_in_a_list_of_mounts(box: Sandbox, workspace: Path) -> None:
    ran = await run(box, workspace, MOUNTS)

    assert ran.exit_code == 0
    assert str(workspace) not in ran.stdout.text
    assert workspace.parent.name not in ran.stdout.text


async def test_T88_control_in_another_engine_it_is(boxed_by: Callable[[str], Sandbox], workspace: Path) -> None:
    ran = await run(boxed_by("podman"), workspace, MOUNTS)

    assert workspace.parent.name in ran.stdout.text
    assert any("mountinfo" in sentence for sentence in ran.weaker)


async def test_what_needs_no_list_of_mounts_works_as_before(box: Sandbox, workspace: Path) -> None:
    (workspace / ".npmrc").write_text("ours\n")
    text = (
        "pwd; df . >/dev/null && echo df; ps -e | grep -q ps && echo ps; cat /proc/self/status | grep -c Cap; "
        "readlink /proc/self/cwd; cat <(echo fd); mv .npmrc x 2>/dev/null || echo sealed"
    )

    ran = await run(box, workspace, text)

    assert ran.stdout.text.split() == ["/workspace", "df", "ps", "5", "/workspace", "fd", "sealed"]
