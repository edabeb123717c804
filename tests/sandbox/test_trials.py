"""Commands are tried where they change and reach nothing; a person is asked about those that want more."""

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import forked
from toolwire import Agent, Approval, Grant, SqliteStore, Tier, tool
from toolwire.deliver.secrets import Secret, Secrets
from toolwire.errors import Suspended
from toolwire.execute.sandbox.ops import Sandbox
from toolwire.protocol.calls import NeedsApproval, ToolCall, ToolResult
from toolwire.protocol.operations import Command, Listener, Ran, shell
from toolwire.protocol.policy import Autonomy, Rule
from toolwire.testing import ScriptedModel, call
from toolwire.toolbox.shell.bash import bash_tool

from .conftest import git

CANARY = "canary-7f3a"
_USER = 54_321


class Person:
    """Answers every question in the same way, and remembers them."""

    def __init__(self, *, granted: bool = True) -> None:
        self.granted = granted
        self.asked: list[str] = []

    async def __call__(self, request: NeedsApproval) -> Approval:
        self.asked.append(request.reason)
        return Approval(granted=self.granted)


def grant(workspace: Path) -> Grant:
    return Grant(tier=Tier.RUN, permissions=frozenset({"shell"}), roots=(str(workspace),))


async def run(
    workspace: Path, box: Sandbox, text: str, person: Person | None = None, granted: Grant | None = None
) -> ToolResult:
    """Run a command in bash through the whole journey; with no person there is nobody to ask."""
    given = granted or grant(workspace)
    async with asyncio.timeout(60), Agent(ScriptedModel(), [bash_tool(box)], grant=given, approve=person) as agent:
        return await agent.call("bash", {"command": text})


def content(workspace: Path) -> dict[str, tuple[object, ...]]:
    """Everything in a folder: its mode and, of a file, its time and what is in it."""
    return {
        str(path): (path.lstat().st_mode, *((path.stat().st_mtime_ns, path.read_bytes()) if _is_file(path) else ()))
        for path in workspace.rglob("*")
    }


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "data.txt").write_text("one 1\ntwo 2\n")
    (workspace / "src").mkdir()
    (workspace / "src" / "tool.py").write_text("def double(n):\n    return 2 * n\n")
    (workspace / "count.sh").write_text("wc -l < data.txt\n")
    (workspace / "Makefile").write_text("all:\n\techo made > made\n")
    return workspace


READING = {
    "awk '{sum += $2} END {print sum}' data.txt": "3",
    "python3 -c 'print(6 * 7)'": "42",
    "cd src && python3 -c 'import tool; print(tool.double(21))'": "42",
    "perl -ne 'print if /two/' data.txt": "two 2",
    'n=$(wc -l < data.txt); echo "$n lines"': "2 lines",
    'while read -r a b; do echo "$b-$a"; done < data.txt': "2-two",
    "TZ=UTC date -d @0 +%Y": "1970",
    'twice() { echo "$1$1"; }; twice ab': "abab",
    "cat <<EOF | tr a-z A-Z\nhello\nEOF": "HELLO",
    "sh count.sh": "2",
    "tar cf - data.txt | tar tf -": "data.txt",
    "sort data.txt > /tmp/sorted && head -1 /tmp/sorted": "one 1",
    "arr=(a b c); echo ${#arr[@]}": "3",
    "python3 -c \"open('data.txt', 'r+').close(); print('unchanged')\"": "unchanged",
    "touch /tmp/x && rm /tmp/x && echo gone": "gone",
    "d=$(mktemp -d) && echo hi > $d/a && cat $d/a && rm -r $d": "hi",
    "make -n": "echo made",
    "test -w data.txt && echo writable": "writable",
    "[ -w data.txt ] && echo writable": "writable",
    "find . -name data.txt -writable": "data.txt",
    "f=data.txt; cp --version > /dev/null; head -1 $f": "one 1",
    "[[ $(head -1 data.txt) =~ one ]] && echo matches 2>/dev/stderr": "matches",
}


@pytest.mark.parametrize("text", READING)
async def test_what_only_reads_runs_unasked_whatever_program_it_is(project: Path, box: Sandbox, text: str) -> None:
    before = content(project)

    result = await run(project, box, text)

    assert result.ok, result.text
    assert READING[text] in result.structured["stdout"]
    assert content(project) == before


WRITING = {
    "python3 -c \"open('x', 'w').write('evil')\"": "'x'",
    "python3 -c \"open('data.txt', 'a').write('evil')\"": "'data.txt'",
    "perl -i -pe 's/one/eins/' data.txt": "'data.txt'",
    "awk '{print > \"x\"}' data.txt": "'x'",
    "awk 'BEGIN {system(\"touch x\")}'": "'x'",
    "sh -c 'rm data.txt'": "'data.txt'",
    "eval 'mv data.txt moved'": "'data.txt'",
    "python3 -c \"import os; os.chmod('count.sh', 0o777)\"": "'count.sh'",
    "python3 -c \"import os; os.utime('data.txt', (1, 1))\"": "'data.txt'",
    "python3 -c \"import shutil; shutil.rmtree('src')\"": "'src'",
    "python3 -c \"import shutil, os; shutil.rmtree('src'); os.mkdir('src')\"": "'src'",
    "python3 -c \"import os; os.symlink('/etc', 'x')\"": "'x'",
    "python3 -c \"import os; os.link('data.txt', 'x')\"": "'x'",
    "python3 -c \"import os; os.mkfifo('x')\"": "'x'",
    "make": "'made'",
    "f=x; echo hi > $f": "'x'",
    "f=data.txt; rm $f": "'data.txt'",
    "rm *.txt": "'data.txt'",
    "env -S 'touch x'": "'x'",
    "python3 -c \"try: open('x', 'w')\nexcept OSError: pass\"; true": "'x'",
    'echo "touch x" | bash; echo fine': "'x'",
    "python3 -c \"import os; os.truncate('data.txt', 0)\" & wait; sleep 20": "'data.txt'",
}


@pytest.mark.threat("T102")
@pytest.mark.parametrize("text", WRITING)
async def test_T102_what_wants_to_write_changes_nothing_and_is_asked_about(
    project: Path, box: Sandbox, text: str
) -> None:
    before = content(project)
    person = Person(granted=False)

    result = await run(project, box, text, person)

    assert not result.ok
    assert len(person.asked) == 1
    assert f"It would change {WRITING[text]}" in person.asked[0]
    assert content(project) == before


@pytest.mark.control("T102")
@pytest.mark.parametrize("text", [text for text in WRITING if "sleep" not in text])
async def test_T102_control_the_same_command_writes_where_it_was_approved(
    project: Path, box: Sandbox, text: str
) -> None:
    before = content(project)
    person = Person()

    result = await run(project, box, text, person)

    assert result.ok, result.text
    assert len(person.asked) == 1
    assert content(project) != before


async def test_a_trial_that_stops_half_way_is_not_the_result_and_leaves_no_half_behind(
    project: Path, box: Sandbox
) -> None:
    """The command runs once where it counts, from its beginning, and its own exit code is told."""
    person = Person()
    text = "python3 -c \"open('log', 'a').write('begun\\n')\"; sh -c 'sleep 0.3; cat log; exit 3'"

    result = await run(project, box, text, person)

    assert len(person.asked) == 1
    assert (result.structured["exit_code"], result.structured["stdout"]) == (3, "begun\n")
    assert (project / "log").read_text() == "begun\n"


async def test_what_plainly_writes_is_asked_about_without_a_trial(project: Path, box: Sandbox) -> None:
    person = Person(granted=False)

    for text in ("touch x", "echo a > x", "sed -i s/a/b/ data.txt", "git commit -m x", "npm install left-pad"):
        await run(project, box, text, person)

    assert len(person.asked) == 5
    assert not [reason for reason in person.asked if "would change" in reason]


KEYS = [
    ".env", ".env.local", "sub/deep/.env.production", ".netrc", ".git-credentials", ".config/gh/hosts.yml",
    ".ssh/id_ed25519", ".aws/credentials", "sub/.aws/credentials", "id_rsa", ".pgpass",
]  # fmt: skip
SHOWING = [
    "python3 -c \"import os; print([open(os.path.join(d, f)).read() for d, _, n in os.walk('.') for f in n if os.access"
    '(os.path.join(d, f), os.R_OK)])"',
    "grep -r canary . ; true",
    "find . -type f -exec cat {} + 2>/dev/null; true",
    "cat .e* .n* .g*/* .config/*/* sub/.a*/* 2>/dev/null; true",
    "tar cf - . 2>/dev/null | cat; true",
    "cp -r . /tmp/all 2>/dev/null; cat /tmp/all/.e*; true",
    "cat data/link 2>/dev/null; true",
]


@pytest.fixture
def keys(project: Path) -> Path:
    for name in KEYS:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(f"KEY={CANARY}\n")
    (project / "data").mkdir()
    (project / "data" / "real").write_text(f"KEY={CANARY}\n")
    (project / "data" / ".env").symlink_to("real")
    (project / "data" / "link").symlink_to("../.env")
    return project


@pytest.mark.threat("T102")
@pytest.mark.parametrize("text", SHOWING)
async def test_T102_no_command_is_shown_keys_without_a_question(keys: Path, box: Sandbox, text: str) -> None:
    result = await run(keys, box, text)

    assert CANARY not in result.text
    assert (keys / ".env").read_text() == f"KEY={CANARY}\n"


@pytest.mark.control("T102")
async def test_T102_control_an_approved_command_is_shown_them(keys: Path, box: Sandbox) -> None:
    person = Person()

    result = await run(keys, box, "cat .env", person)

    assert CANARY in result.text
    assert len(person.asked) == 1
    assert "'.env'" in person.asked[0]


@pytest.mark.parametrize("text", ["ls -A", "test -f .env && echo there", "cat .env.example", "git check-ignore .env"])
async def test_keys_that_are_not_read_are_no_reason_to_ask(keys: Path, box: Sandbox, text: str) -> None:
    (keys / ".env.example").write_text("KEY=\n")
    git("-C", str(keys), "init", "-q")
    (keys / ".gitignore").write_text(".env\n")

    result = await run(keys, box, text)

    assert result.ok, result.text
    assert result.structured["exit_code"] == 0


FILLED_IN = {
    "other content": "echo KEY={0} > .env",
    "the same size and time": "touch -r .env old; printf %s {0} > .env; touch -r old .env",
    "not compared by git": "git update-index --skip-worktree .env; echo KEY={0} > .env",
    "to be added later": "git rm -q --cached .env; echo KEY={0} > .env; git add -N .env",
    "decrypted by a filter": "git config filter.x.clean 'tr A-Z a-z'; echo '.env filter=x' > .gitattributes; "
    "echo KEY={0} > .env; git add .env",
}


def prepare(project: Path, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=project, check=True)


@pytest.mark.parametrize("way", FILLED_IN)
@pytest.mark.parametrize("kind", ["sha1", "sha256"])
async def test_T102_a_tracked_file_that_was_filled_in_with_keys_is_not_shown(
    project: Path, box: Sandbox, way: str, kind: str
) -> None:
    (project / ".env").write_text("x" * len(CANARY))
    script = f"git init -q --object-format={kind}; git add .env; {FILLED_IN[way].format(CANARY)}"
    prepare(project, script)

    result = await run(project, box, "cat .env; true")

    assert CANARY in (project / ".env").read_text()
    assert CANARY not in result.text


@pytest.mark.parametrize("name", [".env", ".netrc", ".aws/credentials", "sub/.aws/credentials", ".ssh/id_ed25519"])
async def test_T117_a_second_name_of_a_key_file_is_hidden_too(keys: Path, box: Sandbox, name: str) -> None:
    (keys / "a/b").mkdir(parents=True)
    (keys / "a/b/notes.txt").hardlink_to(keys / name)
    (keys / "a/other.txt").write_text("ordinary")
    (keys / "a/same.txt").hardlink_to(keys / "a/other.txt")

    result = await run(
        keys, box, "cat a/b/notes.txt a/same.txt 2>/dev/null; find a -type f | xargs cat 2>/dev/null; true"
    )

    assert CANARY not in result.text
    assert "ordinary" in result.text


async def test_T117_control_a_copy_of_a_key_file_is_an_ordinary_file(keys: Path, box: Sandbox) -> None:
    (keys / "notes.txt").write_text((keys / ".env").read_text())

    assert CANARY in (await run(keys, box, "cat notes.txt")).text


@pytest.mark.parametrize("folder", [".docker", ".aws", ".ssh", "sub/.aws", "sub/.docker", ".config/gh"])
async def test_T117_what_git_tracks_in_a_folder_of_keys_is_not_called_deleted(
    project: Path, box: Sandbox, folder: str
) -> None:
    (project / folder).mkdir(parents=True)
    (project / folder / "nginx.conf").write_text("PORT=80\n")
    (project / folder / "credentials").write_text(f"KEY={CANARY}\n")
    (project / ".gitignore").write_text("credentials\n")
    prepare(project, "git init -q; git add -A; git -c user.name=u -c user.email=u@x commit -qm one")
    text = f"git status --short; cat {folder}/nginx.conf"

    unasked, shown = await run(project, box, text), await run(project, box, f"cat {folder}/credentials; true")
    ran = await box.run(Command(shell(f"echo x > new; git add -A; {text}"), str(project)))

    assert CANARY not in unasked.text + shown.text
    assert unasked.structured["stdout"] == "PORT=80\n"
    assert ran.stdout.text == "A  new\nPORT=80\n", ran.stderr.text


async def test_a_tracked_key_file_is_shown_after_it_was_copied(project: Path, box: Sandbox) -> None:
    script = "echo PORT=80 > .env; git init -q; git add .env; cp .env new; touch -d @9 new; mv new .env"
    prepare(project, script)

    result = await run(project, box, "cat .env")

    assert "PORT=80" in result.text


async def test_a_key_file_that_git_tracks_is_shown_so_that_git_does_not_call_it_changed(
    project: Path, box: Sandbox
) -> None:
    (project / ".env").write_text("PORT=80\n")
    (project / "sub").mkdir()
    (project / "sub" / ".env").write_text(f"KEY={CANARY}\n")
    for words in (
        ["init", "-q"],
        ["add", ".env", "data.txt"],
        ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"],
    ):
        git("-C", str(project), *words)

    status = await run(project, box, "git status --short --untracked-files=no")
    read = await run(project, box, "cat .e* sub/.e*; true")

    assert status.structured["stdout"] == ""
    assert "PORT=80" in read.text
    assert CANARY not in read.text


async def test_a_turn_that_may_only_look_is_tried_and_never_asks(project: Path, box: Sandbox) -> None:
    granted = replace(grant(project), autonomy=Autonomy.READONLY)
    person = Person()

    reads = await run(project, box, "python3 -c 'print(6 * 7)'", person, granted)
    writes = await run(project, box, "python3 -c \"open('x', 'w')\"", person, granted)

    assert "42" in reads.text
    assert writes.error is not None
    assert writes.error.code == "permission_denied"
    assert "may only look" in writes.text
    assert (person.asked, (project / "x").exists()) == ([], False)


@pytest.mark.parametrize(
    "rule", ["ask needs shell", "ask bash where command is touch", "deny bash where command is rm"]
)
async def test_a_rule_that_asks_or_denies_counts_before_any_trial(project: Path, box: Sandbox, rule: str) -> None:
    granted = replace(grant(project), rules=(Rule.parse(rule),))
    person = Person(granted=False)

    result = await run(project, box, "python3 -c 'print(42)'", person, granted)

    assert not result.ok
    assert len(person.asked) == 1


@pytest.mark.threat("T102")
async def test_T102_where_hosts_are_granted_what_wants_to_reach_one_is_asked_about(project: Path, box: Sandbox) -> None:
    """Also where the command itself makes nothing of it."""
    permissions = frozenset({"shell", "network"})
    granted = replace(grant(project), permissions=permissions, network=("a.example",))
    person = Person(granted=False)
    reaching = "python3 -c \"import urllib.request as r; r.urlopen('http://a.example/')\" || true"

    await run(project, box, reaching, person, granted)
    fine = await run(project, box, "python3 -c 'print(42)'", person, granted)
    failing = await run(project, box, "python3 -c 'raise SystemExit(3)'", person, granted)

    assert "42" in fine.text
    assert failing.structured["exit_code"] == 3
    assert len(person.asked) == 1
    assert "It would reach 'a.example:80'." in person.asked[0]


async def test_the_question_after_a_trial_waits_on_record_and_the_command_runs_once(
    project: Path, box: Sandbox, tmp_path: Path
) -> None:
    (project / "step.sh").write_text("echo ran >> log\n")

    def agent(store: SqliteStore, *script: str | list[ToolCall]) -> Agent:
        return Agent(ScriptedModel(*script), [bash_tool(box)], grant=grant(project), store=store, suspends=True)

    async with await SqliteStore.at(tmp_path / "store") as store:
        with pytest.raises(Suspended) as waits:
            await agent(store, [call("bash", command="sh step.sh")]).ask("Do it")
        assert not (project / "log").exists()
    async with await SqliteStore.at(tmp_path / "store") as store:
        [asked] = await store.approvals(only_open=True)
        assert "It would change 'log'." in asked.reason
        await store.answer(asked.id, Approval(granted=True, by="ann"))
    async with await SqliteStore.at(tmp_path / "store") as store:
        answer = await agent(store, "Done.").resume(waits.value.turn_id)
        events = [row.event for row in await store.audit_log() if row.call_id == asked.call_id]

    assert answer.text == "Done."
    assert (project / "log").read_text() == "ran\n"
    assert events == ["allowed", "started", "awaiting_approval", "approved", "started", "finished"]


@pytest.mark.parametrize("engine", ["firejail", "podman"])
async def test_every_engine_that_confines_tries_commands(
    project: Path, boxed_by: Callable[[str], Sandbox], engine: str
) -> None:
    (project / ".env").write_text(CANARY)
    sandbox = boxed_by(engine)
    before = content(project)

    def trial(text: str) -> Command:
        return Command(shell(text), str(project), writable=False, trial=True, hides_keys=True)

    reads = await sandbox.run(trial("python3 -c 'print(42)'; cat .env"))
    writes = await sandbox.run(trial("python3 -c \"open('x', 'w')\""))

    assert (reads.stdout.text, reads.changes, reads.hidden) == ("42\n", (), (".env",))
    assert CANARY not in reads.stderr.text
    assert writes.changes == ("x",)
    assert content(project) == before


@pytest.mark.parametrize("engine", ["bubblewrap", "podman"])
def test_an_ordinary_user_tries_commands_with_bubblewrap_and_is_safe_elsewhere(tmp_path: Path, engine: str) -> None:
    """Only bubblewrap can lay something over a workspace for an ordinary user; others show it read-only."""
    folder = tmp_path / "ordinary"
    workspace = folder / "a,b:c"
    workspace.mkdir(parents=True)
    (workspace / "data.txt").write_text("one\n")
    (workspace / ".env").write_text(CANARY)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, _USER, _USER)
    for above in (*tmp_path.parents, tmp_path):
        if above.is_relative_to(tempfile.gettempdir()) and above != Path(tempfile.gettempdir()):
            above.chmod(0o755)

    words = ["-m", "tests.sandbox.ordinary_user", str(_USER), engine, str(workspace), "trial"]
    text = "cat data.txt .env; python3 -c \"open('data.txt', 'a').write('evil')\"; echo done"
    done = forked.run_python(*words, text=text)
    done.check_returncode()
    told = json.loads(done.stdout)

    assert CANARY not in done.stdout
    assert (workspace / "data.txt").read_text() == "one\n"
    if engine == "bubblewrap":
        assert (told["out"], told["changes"]) == ("one\ndone\n", ["data.txt"])
    left = Path(tempfile.gettempdir()).glob("toolwire-*-trial")
    assert [path for path in left if path.lstat().st_uid == _USER] == []


async def test_a_machine_that_cannot_try_commands_asks_as_before(project: Path, box: Sandbox) -> None:
    """What is run elsewhere without knowing of trials comes back without an answer about changes."""

    class OldEnd:
        async def run(self, command: Command, listener: Listener | None = None) -> Ran:
            return await box.run(replace(command, trial=False), listener)

    person = Person(granted=False)
    async with Agent(ScriptedModel(), [bash_tool(OldEnd())], grant=grant(project), approve=person) as agent:
        await agent.call("bash", {"command": "python3 -c 'print(42)'"})
        await agent.call("bash", {"command": "python3 -c \"open('x', 'w')\""})

    assert len(person.asked) == 2
    assert not (project / "x").exists()


@pytest.mark.threat("T102")
@pytest.mark.parametrize("text", ["echo {{secret:KEY}} | rev", "python3 -c 'print(\"{{secret:KEY}}\"[::-1])'"])
async def test_T102_a_secret_is_given_to_no_command_without_a_question(project: Path, box: Sandbox, text: str) -> None:
    """What a command makes of it, such as its letters turned around, could be shown to the model."""
    person = Person(granted=False)
    secrets = Secrets({"KEY": Secret("hunter2hunter2", frozenset({"bash"}))})
    tools = [bash_tool(box)]
    async with Agent(ScriptedModel(), tools, grant=grant(project), approve=person, secrets=secrets) as agent:
        result = await agent.call("bash", {"command": text})

    assert len(person.asked) == 1
    assert "2retnuh" not in result.text


@pytest.mark.threat("T102")
async def test_T102_a_tool_that_knows_no_trials_is_not_run_before_the_question(project: Path) -> None:
    ran: list[str] = []

    @tool(tier=Tier.RUN, needs={"shell"})
    def other_shell(command: str) -> str:
        """Run a command."""
        ran.append(command)
        return "done"

    person = Person(granted=False)
    tools = [replace(other_shell, reading_box=True)]
    async with Agent(ScriptedModel(), tools, grant=grant(project), approve=person) as agent:
        await agent.call("other_shell", {"command": "python3 -c 'print(1)'"})

    assert (ran, len(person.asked)) == ([], 1)


async def test_a_workspace_is_left_as_it_was_and_nothing_is_left_behind(project: Path, box: Sandbox) -> None:
    before = content(project)
    await run(project, box, "python3 -c \"open('x', 'w')\"", Person(granted=False))
    opened = _left_open()

    for _ in range(3):
        await run(project, box, "python3 -c \"open('x', 'w')\"", Person(granted=False))

    assert content(project) == before
    assert _left_open() == opened


def _left_open() -> tuple[int, list[str]]:
    """How many descriptors this process has, and what it sees of the mounts of boxes."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return len(list(Path("/proc/self/fd").iterdir())), [line for line in mounts if "/run/toolwire" in line]
