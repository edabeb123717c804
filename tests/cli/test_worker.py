"""`toolwire worker` and `[services.NAME]`: tools of a project that run in another process."""

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.stage import LIMIT_S, Stage, scripted

SOCKET = ".toolwire/sockets/shed.sock"
GARDEN = '''
import os, time
from msgspec.structs import replace
from pathlib import Path
from toolwire import Context, Effect, tool
from toolwire.errors import Suspended


@tool(effect=Effect.PURE)
def where(context: Context) -> dict:
    """Say in which process this runs."""
    context.progress("looking")
    return {"process": os.getpid(), "key": context.idempotency_key}


@tool
def leak(key: str) -> str:
    """Say how long a key is, and the key."""
    return f"{len(key)}: {key}"


@tool
async def tell(key: str, context: Context, late: bool = False) -> str:
    """Say a key in everything but the result."""
    context.progress(f"opening with {key}", 0.5)
    context.read_from(f"https://example.com/?key={key}")
    context.touched(f"list:{key}", writes=True)
    if late:
        after = replace(context, told=[])
        after.read_from(f"https://example.com/late?key={key}")
        await after.recorder.record_told(after, "tell")
    return "told"


@tool
async def stop(key: str) -> str:
    """Say a key where a turn is waited for."""
    raise Suspended("", (), f"turn of {key}")


@tool
def dig() -> str:
    """Dig until a file says that it is enough."""
    Path("digging").write_text(str(os.getpid()))
    while not Path("enough").exists():
        time.sleep(0.01)
    return "dug"
'''
SETTINGS = """
[tools]
modules = ["garden:where", "garden:leak", "garden:dig", "garden:tell", "garden:stop"]
secrets = ["KEY for leak", "KEY for tell", "KEY for stop"]
[services.shed]
socket = "shed.sock"
tools = ["where", "leak", "dig", "calculator", "tell", "stop"]
"""


@pytest.fixture
def shed(stage: Stage) -> Stage:
    stage.module("garden", GARDEN)
    stage.settings(SETTINGS)
    return stage


def work(stage: Stage, *words: str, **environ: str) -> "subprocess.Popen[bytes]":
    """A worker that listens."""
    stage.environ |= environ
    process = stage.start("worker", *(words or ("shed",)))
    for name in environ:
        del stage.environ[name]
    assert process.stdout is not None
    line = process.stdout.readline()
    assert b" for callers at" in line, (line, process.communicate(timeout=LIMIT_S))
    return process


def end(process: "subprocess.Popen[bytes]") -> int:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)
    return process.returncode


def test_a_call_of_a_served_tool_runs_in_the_worker(shed: Stage) -> None:
    worker = work(shed)
    there = shed.run("call", "where", "--json")
    built_in = shed.run("call", "calculator", "expression=6*7")
    tools = shed.run("tools", "--json")

    assert there.json["structured"]["process"] == worker.pid
    assert '"result":42' in built_in.out
    assert "where" in tools.out
    assert end(worker) == 0
    assert not (shed.folder / SOCKET).exists()


def test_the_calls_of_a_model_run_in_the_worker(shed: Stage) -> None:
    worker = work(shed)
    with scripted([("where", {})], "Done.") as model:
        asked = shed.run("ask", "Where?", *model.flags)
    [answer] = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]

    assert asked.out.strip() == "Done."
    assert f'"process":{worker.pid}' in answer.replace(" ", "")


def test_a_worker_of_another_folder_gives_all_its_tools(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Stage(tmp_path_factory.mktemp("other"))
    other.module("garden", GARDEN)
    other.settings('[tools]\nmodules = ["garden:where"]\ninclude = ["where"]\n')
    stage.settings(f'[services.far]\nsocket = "{other.folder}/w.sock"\n')
    worker = work(other, "--socket", "w.sock")

    there = stage.run("call", "where", "--json")

    assert there.json["structured"]["process"] == worker.pid
    assert end(worker) == 0
    other.close()


def test_secrets_are_revealed_in_the_worker_only(shed: Stage) -> None:
    work(shed, KEY="opensesame")
    told = shed.run("call", "leak", "key={{secret:KEY}}", "--yes")

    assert told.code == 0, told.err
    assert told.out.startswith("10: ")
    assert "opensesame" not in told.out


@pytest.mark.parametrize("words", [("tell",), ("tell", "late=true"), ("stop",)])
def test_no_secret_of_a_worker_leaves_it_beside_a_result(shed: Stage, words: tuple[str, ...]) -> None:
    """Progress, origins, what is told after a call and what a failure says: the caller knows none of its secrets."""
    work(shed, KEY="opensesame")
    with shed.start("call", *words, "key={{secret:KEY}}", "--yes", "--json") as caller:
        out, err = caller.communicate(timeout=LIMIT_S)
    kept = [file.read_bytes() for file in (shed.folder / ".toolwire").rglob("*") if file.is_file()]

    assert caller.returncode == (1 if words == ("stop",) else 0), err
    assert any(b"example.com" in one or b"waits for another turn" in one for one in kept)
    assert not any(b"opensesame" in one for one in (out, err, *kept))


def test_a_worker_that_is_not_there_is_said_and_nothing_is_recorded(shed: Stage) -> None:
    ran = shed.run("call", "where")

    assert ran.code == 2
    assert "services.shed: the service at" in ran.err
    assert "cannot be reached (No such file or directory); start it with: toolwire worker shed" in ran.err


def test_a_worker_that_is_killed_over_an_unsafe_call_leaves_its_outcome_unknown(shed: Stage) -> None:
    worker = work(shed)
    caller = shed.start("call", "dig", "--yes", "--json", stdin=subprocess.DEVNULL)
    begun = shed.folder / "digging"
    while not begun.exists() or not begun.read_text():
        assert caller.poll() is None, caller.communicate(timeout=LIMIT_S)
    assert int(begun.read_text()) == worker.pid
    worker.kill()
    out, _ = caller.communicate(timeout=LIMIT_S)
    after = shed.run("call", "where")

    assert caller.returncode == 1
    assert json.loads(out)["error"]["code"] == "outcome_unknown"
    assert "cannot be reached (Connection refused)" in after.err


def test_a_worker_that_is_told_to_end_lets_its_call_finish(shed: Stage) -> None:
    worker = work(shed)
    caller = shed.start("call", "dig", "--yes")
    begun = shed.folder / "digging"
    while not begun.exists():
        assert caller.poll() is None, caller.communicate(timeout=LIMIT_S)
    worker.send_signal(signal.SIGTERM)
    while (shed.folder / SOCKET).exists():
        assert worker.poll() is None
    (shed.folder / "enough").touch()
    out, err = caller.communicate(timeout=LIMIT_S)
    worker.communicate(timeout=LIMIT_S)

    assert (caller.returncode, out.strip()) == (0, b"dug"), err
    assert worker.returncode == 0


def test_a_token_that_is_wrong_or_missing_is_said(shed: Stage) -> None:
    shed.settings(SETTINGS + 'token_env = "SHED_TOKEN"\n')
    unset = shed.run("worker", "shed")
    work(shed, SHED_TOKEN="right")
    wrong = shed.run("call", "where", SHED_TOKEN="wrong")
    right = shed.run("call", "where", "--json", SHED_TOKEN="right")

    assert (unset.code, wrong.code, right.code) == (2, 2, 0)
    assert "services.shed.token_env: the variable SHED_TOKEN is not set, or empty" in unset.err
    assert "refused: the token is missing or wrong" in wrong.err


@pytest.mark.parametrize(
    ("settings", "words", "sentence"),
    [
        (SETTINGS, ("shet",), "there is no section [services.shet]; did you mean shed?"),
        ("", ("shed",), "there is no section [services.shed]; add it to toolwire.toml, or give --socket alone"),
        ("", (), "name a service of the settings, or give --socket PATH"),
        (SETTINGS.replace('"where", "leak"', '"wear"'), ("shed",), "no tool 'wear'; did you mean where?"),
        ("", ("--socket", "x" * 120), "the path of a socket has at most 107 bytes"),
        ("", ("--socket", "toolwire.toml"), "there is something else than a socket"),
        ("", ("--socket", "missing/w.sock"), "cannot listen at"),
        ("[services.shed]\ntools = []\n", ("shed",), "services.shed.socket"),
    ],
)
def test_a_worker_that_cannot_be_is_told_why(shed: Stage, settings: str, words: tuple[str, ...], sentence: str) -> None:
    shed.settings(settings)
    ran = shed.run("worker", *words)

    assert ran.code == 2
    assert sentence in ran.err


def test_two_workers_do_not_share_a_socket(shed: Stage) -> None:
    first = work(shed)
    second = shed.run("worker", "shed")

    assert second.code == 2
    assert "another service listens there" in second.err
    assert shed.run("call", "where", "--json").json["structured"]["process"] == first.pid


def test_a_name_that_two_places_have_is_refused_unless_the_settings_choose(shed: Stage) -> None:
    shed.settings(SETTINGS.replace('tools = ["where", "leak", "dig", "calculator", "tell", "stop"]\n', ""))
    work(shed)
    ran = shed.run("call", "where")

    assert ran.code == 2
    assert "and so has this process; name in services.shed.tools those that are to run there" in ran.err


def test_a_tool_that_the_worker_lacks_is_said(shed: Stage) -> None:
    work(shed)
    shed.settings(SETTINGS.replace('"dig", "calculator", "tell", "stop"]', '"digs"]'))
    ran = shed.run("call", "where")

    assert ran.code == 2
    assert "services.shed.tools: this worker has no tool 'digs'; did you mean dig?" in ran.err


def test_T170_a_cloned_project_sends_no_call_to_a_socket_without_trust(shed: Stage) -> None:
    shed.settings('[services.shed]\nsocket = "shed.sock"\n')
    ran = shed.run("call", "calculator", "expression=1", TOOLWIRE_TRUST="")

    assert ran.code == 2
    assert "services.shed.socket" in ran.err
    assert "toolwire trust" in ran.err


def test_T170_control_a_trusted_project_does(shed: Stage) -> None:
    worker = work(shed)

    assert shed.run("call", "where", "--json").json["structured"]["process"] == worker.pid


@contextmanager
def impostor(place: Path) -> Iterator[socket.socket]:
    """A listener such as a command could leave in a folder that it may write to."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        listener.setblocking(False)
        yield listener


def address_in(shed: Stage, way: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the settings say, and where a command could put its own socket for that."""
    outside, inside = tmp_path_factory.mktemp("o"), shed.folder
    (inside / "run").mkdir()
    (inside / ".toolwire").mkdir(mode=0o700)
    match way:
        case "absolute":
            return f"{inside}/run/s", inside / "run/s"
        case "up from the state folder":
            return "../../s", inside / "s"
        case "a state folder below the top":
            (inside / "run/.toolwire").mkdir()
            return f"{inside}/run/.toolwire/s", inside / "run/.toolwire/s"
        case "a link that leads in":
            (outside / "link").symlink_to(inside / "run")
            return f"{outside}/link/s", inside / "run/s"
        case "a link that leads out":
            (inside / "run/link").symlink_to(outside)
            return f"{inside}/run/link/s", outside / "s"
        case "a link to a link that leads out":
            (inside / "run/link").symlink_to(outside)
            (outside / "first").symlink_to(inside / "run/link")
            return f"{outside}/first/s", outside / "s"
        case "another root":
            shed.environ["TOOLWIRE_GRANT__ROOTS"] = json.dumps([str(inside), str(outside)])
            return f"{outside}/s", outside / "s"
    raise AssertionError(way)


@pytest.mark.parametrize(
    ("way", "command"),
    [
        ("absolute", ("call", "where")),
        ("absolute", ("tools",)),
        ("absolute", ("ask", "Hi")),
        ("absolute", ("worker", "shed")),
        ("up from the state folder", ("call", "where")),
        ("a state folder below the top", ("call", "where")),
        ("a link that leads in", ("call", "where")),
        ("a link that leads out", ("call", "where")),
        ("a link to a link that leads out", ("call", "where")),
        ("another root", ("call", "where")),
    ],
)
def test_T172_no_call_goes_to_a_socket_that_commands_could_have_replaced(
    shed: Stage, way: str, command: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The kernel cannot tell it from a worker's: commands in a box run as the user, unless that is root."""
    address, place = address_in(shed, way, tmp_path_factory)
    shed.settings(SETTINGS.replace('"shed.sock"', json.dumps(address)) + 'token_env = "SHED_TOKEN"\n')
    with impostor(place) as listener:
        ran = shed.run(*command, SHED_TOKEN="opensesame")

        assert ran.code == 2
        assert "services.shed.socket" in ran.err
        assert "could be replaced by tools that may change" in ran.err
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_T172_control_a_name_lies_in_the_state_folder_which_no_command_sees(shed: Stage) -> None:
    shed.settings(SETTINGS + 'token_env = "SHED_TOKEN"\n')
    worker = work(shed, SHED_TOKEN="opensesame")
    flags = ("--tools", "shell", "--tier", "run", "--allow", "shell", "--yes")
    seen = shed.run("call", "bash", f"command=ls {SOCKET}", *flags, SHED_TOKEN="opensesame")
    there = shed.run("call", "where", "--json", SHED_TOKEN="opensesame")

    assert (shed.folder / SOCKET).is_socket()
    assert "No such file" in seen.out + seen.err
    assert there.json["structured"]["process"] == worker.pid


def test_T172_control_an_absolute_path_outside_of_what_is_granted_is_used(
    shed: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shed.settings(SETTINGS.replace('"shed.sock"', f'"{tmp_path_factory.mktemp("o")}/s"'))
    worker = work(shed)

    assert shed.run("call", "where", "--json").json["structured"]["process"] == worker.pid
