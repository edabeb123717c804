"""What every command promises: exit codes, exact JSON, one sentence for a mistake, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import Stage, Terminal
from toolwire.cli.entry.exits import MEANINGS, Exit
from toolwire.cli.entry.program import COMMANDS, command_at

HEAVY = {"pydantic", "httpx2", "rich", "jsonschema_rs", "orjson", "sqlite3", "asyncio", "toolwire.agent"}

NOT_FOR_A_CALL = {"pydantic", "pydantic_core", "annotated_types", "httpx2", "rich"}


def test_help_loads_nothing_heavy(stage: Stage) -> None:
    """We chose it: help must come at once, so commands are imported only when they are invoked."""
    program = (
        "import sys\nfrom toolwire.cli import main\nsys.argv = ['toolwire', '--help']\n"
        f"try:\n    main()\nfinally:\n    print(sorted({HEAVY} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr.strip() == "[]"
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize(
    "words",
    [
        ["call", "calculator", "expression=2+2"],
        ["call", "bash", "command=true", "--tools", "shell", "--tier", "run", "--allow", "shell"],
    ],
    ids=lambda words: words[1],
)
def test_a_local_call_loads_nothing_that_it_does_not_need(stage: Stage, words: list[str]) -> None:
    """Each of these takes longer to load than most calls take."""
    program = (
        f"import sys\nfrom toolwire.cli import main\nsys.argv = ['toolwire', *{words}]\n"
        f"try:\n    main()\nfinally:\n    print(sorted({NOT_FOR_A_CALL} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_module_is_the_same_entry_point(stage: Stage) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "toolwire", "--version"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.startswith("toolwire ")


def test_every_command_of_the_table_can_be_loaded_and_has_help() -> None:
    for name, (home, _) in COMMANDS.items():
        assert command_at(home, name).help


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["aks", "hi"], "'ask'"),
        (["ask", "hi", "--jsno"], "--json"),
        (["tools", "lits"], "'list'"),
        (["--vers"], "--version"),
    ],
)
def test_a_misspelled_command_or_flag_gets_the_nearest_one(inside: Inside, words: list[str], suggested: str) -> None:
    ran = inside(*words)
    assert ran.code == Exit.USAGE
    assert suggested in ran.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ask"], Exit.USAGE, "there is no question"),
        (["ask", "hi", "--model", "nonsense"], Exit.USAGE, "provider:model"),
        (["ask", "hi", "--model", "opnai:gpt"], Exit.USAGE, "did you mean openai"),
        (["ask", "hi", "--model", "http://127.0.0.1:9/v1"], Exit.USAGE, "write openai-compatible:MODEL"),
        (["ask", "hi", "--model", "openai:gpt-4o-mini"], Exit.MODEL, "set OPENAI_API_KEY"),
        (["ask", "hi", "--model", "ollama:x", "--base-url", "http://127.0.0.1:9"], Exit.MODEL, "ollama serve"),
        (["ask", "hi", "--profile", "nosuch"], Exit.USAGE, "no such profile"),
        (["ask", "hi", "--tier", "fly"], Exit.USAGE, "crawl"),
        (["ask", "hi", "--replay", "nofile"], Exit.USAGE, "cannot be read"),
        (["ask", "--resume"], Exit.NOT_FOUND, "no interrupted turn"),
        (["ask", "--resume", "nosuch"], Exit.NOT_FOUND, "nosuch"),
        (["call", "echo", "--args", "[1]"], Exit.USAGE, "must be a JSON object"),
        (["call", "echo", "--args", "{1"], Exit.USAGE, "is not JSON"),
        (["call", "echo", "--args", "@nofile"], Exit.USAGE, "cannot be read"),
        (["call", "echo", "message"], Exit.USAGE, "KEY=VALUE"),
        (["call"], Exit.USAGE, "there is no tool to call"),
        (["call", "--resume"], Exit.NOT_FOUND, "no interrupted call"),
        (["call", "ehco", "message=1"], Exit.NOT_FOUND, "Did you mean 'echo'"),
        (["call", "echo", "mesage=1"], Exit.FAILED, "did you mean 'message'"),
        (["tools", "show", "ehco"], Exit.NOT_FOUND, "Did you mean echo"),
        (["tools", "validate", "nosuch.json"], Exit.USAGE, "nosuch.json cannot be read"),
        (["explain", "--call", "nosuch"], Exit.NOT_FOUND, "nosuch"),
        (["explain", "call_1_1"], Exit.DONE, "toolwire explain --call call_1_1"),
        (["explain"], Exit.USAGE, "--call"),
        (["edge", "init", "pi", "--allow", "fileread"], Exit.USAGE, "--allow fileread: did you mean file_read"),
        (["edge", "init", "pi", "--tools", "devise"], Exit.USAGE, "did you mean device?"),
        (["parse", "nofile"], Exit.USAGE, "cannot be read"),
        (["logs", "--filter", "foo"], Exit.USAGE, "choose tool or turn"),
        (["logs", "--turn", "nosuch"], Exit.DONE, "Nothing is on record"),
        (["status", "--home", "/proc/nowhere"], Exit.DONE, ""),
        (["call", "echo", "message=1", "--home", "/proc/nowhere"], Exit.STORE, "/proc/nowhere"),
        (["call", "echo", "message=1", "--home", "/etc/passwd"], Exit.USAGE, "Move it away, or name another folder"),
    ],
)
def test_a_mistake_is_one_clear_sentence_and_its_exit_code(
    inside: Inside, words: list[str], code: Exit, said: str
) -> None:
    ran = inside(*words)
    assert (ran.code, said in ran.err) == (code, True), ran
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tokens", "0"], "--tokens 0: must be a whole number, at least 1"),
        (["--iterations", "2000"], "--iterations 2000: must be a whole number, at least 1, at most 1000"),
        (["--deadline", "-1"], "--deadline -1.0: must be a number, more than 0"),
        (["--tier", "fly"], "--tier 'fly': must be one of crawl, walk, run"),
        (["--model", "gpt"], "--model 'gpt': must be \"provider:model\""),
        (["--home", ""], "--home '': must be text"),
        (["--profile", "x"], "--profile 'x': no such profile"),
        (["--profile", "x", "--model", "a:b"], "--profile 'x': no such profile"),
    ],
)
def test_a_wrong_flag_is_named_as_it_was_typed(inside: Inside, words: list[str], said: str) -> None:
    ran = inside("ask", "Hi", *words)
    assert (ran.code, said in ran.err) == (Exit.USAGE, True), ran
    assert "loop." not in ran.err


def test_with_json_a_mistake_is_an_object_on_standard_output_too(inside: Inside) -> None:
    ran = inside("ask", "hi", "--model", "openai:gpt-4o-mini", "--json")
    assert ran.json["error"]["exit_code"] == ran.code == Exit.MODEL
    assert "OPENAI_API_KEY" in ran.json["error"]["message"]


def test_broken_settings_name_file_and_place(stage: Stage) -> None:
    stage.settings("model = \n")
    ran = stage.run("tools", "list")
    assert ran.code == Exit.USAGE
    assert "toolwire.toml" in ran.err
    assert "line 1" in ran.err
    assert "Traceback" not in ran.err


def test_a_module_of_tools_that_cannot_be_imported_is_named(stage: Stage) -> None:
    stage.settings('[tools]\nmodules = ["mine:tools"]\n')
    assert "'mine:tools' cannot be imported" in stage.run("tools").err
    stage.module("mine", "import sys\nsys.exit(3)\n")
    ran = stage.run("tools")
    assert (ran.code, "SystemExit" in ran.err) == (Exit.USAGE, True)


ODD = """
from toolwire import Tool
from msgspec.structs import replace
odd = replace(Tool("odd", "Odd."), description=5)
"""


def test_an_error_of_our_own_is_one_sentence_and_its_traceback_is_kept(stage: Stage) -> None:
    """The tool's description is no text, which no definition allows: a bug, as far as the command can tell."""
    stage.settings('[tools]\nmodules = ["mine:odd"]\n')
    stage.module("mine", ODD)
    ran = stage.run("tools", "list")
    assert ran.code == Exit.UNEXPECTED
    assert "Traceback" not in ran.err
    log = (stage.folder / ".toolwire" / "errors.log").read_text()
    assert str(stage.folder / ".toolwire" / "errors.log") in ran.err
    assert "Traceback" in log


def test_the_doctor_says_in_words_why_a_home_cannot_be_written(inside: Inside) -> None:
    ran = inside("doctor", "--home", "/proc/nowhere", "--json")
    [found] = [finding for finding in ran.json["findings"] if finding["what"] == "home"]
    assert found["said"] == "/proc/nowhere cannot be written: No such file or directory"


@pytest.mark.parametrize("words", [["tools", "list", "--json"], ["tools", "list"]])
def test_a_reader_that_goes_away_ends_the_command_quietly(stage: Stage, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        stage.command(*words), cwd=stage.folder, stdout=writer, stderr=subprocess.PIPE, check=False,
        timeout=60,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (Exit.READER_GONE, b"")


@pytest.mark.parametrize("words", [["call", "echo", "message=hi"], ["tools", "list", "--json"], ["ask", "--help"]])
def test_output_that_finds_no_room_is_told_as_such(stage: Stage, words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            stage.command(*words), cwd=stage.folder, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert done.returncode == Exit.FAILED
    assert b"the output could not be written (No space left on device)" in done.stderr
    assert not (stage.folder / ".toolwire" / "errors.log").exists()


@pytest.mark.parametrize(
    ("words", "out", "code"),
    [
        (["call", "echo", "message=hi"], b'{"echo":"hi"}\n', Exit.DONE),
        (["ask", "--nonsense"], b"", Exit.USAGE),
        (["logs", "--filter", "nonsense"], b"", Exit.USAGE),
    ],
)
def test_what_finds_no_room_beside_the_output_fails_no_command(
    stage: Stage, words: list[str], out: bytes, code: Exit
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            stage.command(*words), cwd=stage.folder, stdout=subprocess.PIPE, stderr=full, check=False, timeout=60
        )
    assert (done.returncode, done.stdout) == (code, out)


def test_a_full_disk_is_a_store_that_is_unavailable(stage: Stage) -> None:
    """A real limit of the operating system on the size of files."""
    limited = (
        "import resource, signal, sys; from toolwire.cli import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
        "sys.argv = ['toolwire', 'call', 'echo', 'message=hi']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited], cwd=stage.folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == Exit.STORE, done
    assert "Traceback" not in done.stderr


def test_two_processes_use_one_store(stage: Stage) -> None:
    started = [stage.start("call", "echo", f"message={number}", "--json") for number in range(3)]
    for process in started:
        process.communicate(timeout=60)
    assert [process.returncode for process in started] == [0, 0, 0]
    assert len(stage.run("logs", "--json").json) == 6


def test_colours_only_where_a_terminal_wants_them(stage: Stage) -> None:
    plain = stage.run("doctor").out
    assert "python" in plain
    assert "\x1b" not in plain
    stage.settings('[output]\ncolor = "always"\n')
    assert "\x1b" in stage.run("status").out
    assert "\x1b" not in stage.run("status", "--no-color").out


def test_the_table_of_exit_codes_is_complete() -> None:
    assert MEANINGS.keys() == set(Exit)


def test_the_record_can_live_elsewhere(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> None:
    home: Path = tmp_path_factory.mktemp("elsewhere") / "kept"
    assert stage.run("call", "echo", "message=hi", "--home", str(home)).code == Exit.DONE
    assert (home / "store.db").is_file()
    assert not (stage.folder / ".toolwire").exists()


def test_a_poor_encoding_gets_lookalikes_instead_of_a_failure(stage: Stage) -> None:
    ran = stage.run("explain", "echo", "message=1", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert ran.code == Exit.DONE
    assert ran.out.startswith("+ exists")


def test_closed_standard_streams_fail_nothing(stage: Stage) -> None:
    closed = [*stage.command("status")[:1], "status"]
    done = subprocess.run(["sh", "-c", '"$0" "$@" >&- 2>&- <&-', *closed], cwd=stage.folder, check=False, timeout=60)
    assert done.returncode == Exit.DONE


def test_help_has_colours_at_a_terminal_that_wants_them(stage: Stage) -> None:
    with Terminal(stage, "ask", "--help") as terminal:
        assert terminal.end() == Exit.DONE
    assert "\x1b[36m--json\x1b[0m" in terminal.seen
    with Terminal(stage, "--help", NO_COLOR="1") as terminal:
        assert terminal.end() == Exit.DONE
    assert "\x1b" not in terminal.seen
