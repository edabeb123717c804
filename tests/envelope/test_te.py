"""The real `te`, from a shell's point of view."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.envelope.stage import Stage
from tests.forked import TE
from toolwire.deliver.envelope import read


@pytest.fixture
def project(stage: Stage) -> Stage:
    stage.write("tests/test_core.py", "from app.core import start\n\n\ndef test_start():\n    start()\n")
    stage.write("app/cli.py", "from app.core import start\n\nstart()\n")
    stage.write("app/core.py", "def helper(start):\n    pass\n\n\ndef start():\n    return 1\n")
    stage.write("node_modules/x/index.js", "function start() {}\n")
    return stage


@pytest.mark.feature("F210")
@pytest.mark.feature("F215")
def test_grep_shows_the_definition_first_and_says_how_much_there_is(project: Stage) -> None:
    ran = project.te("grep", "start")

    assert ran.code == 0
    assert ran.lines[0] == "./app/core.py:5:def start():"
    assert [line.startswith("./tests/") for line in ran.lines] == [False] * 4 + [True] * 3
    assert ran.envelope.facts["matches"] == ran.envelope.facts["shown"] == 7
    assert ran.envelope.facts["files"] == 3
    assert "not searched unless named: node_modules/" in ran.envelope.left_out


@pytest.mark.feature("F212")
@pytest.mark.feature("F215")
def test_what_was_left_out_can_be_had_by_its_handle_from_another_folder(project: Stage, tmp_path: Path) -> None:
    project.write("many.txt", "".join(f"needle {number}\n" for number in range(500)))
    first = project.te("grep", "needle", "many.txt", TE_BUDGET="1000")
    handle = first.envelope.facts["handle"]
    assert f"te --handle {handle} --chunk 2" in first.envelope.left_out[0]
    assert first.envelope.facts["truncated"] is True

    seen, chunk, chunks = first.lines, 1, 2
    while chunk < chunks:
        chunk += 1
        more = project.te("--handle", handle, "--chunk", str(chunk), cwd=tmp_path)
        seen, chunks = seen + more.lines, more.envelope.facts["chunks"]

    assert seen == [f"many.txt:{number + 1}:needle {number}" for number in range(500)]


@pytest.mark.feature("F210")
def test_the_middle_of_a_long_output_is_left_out_and_its_ends_are_shown(stage: Stage) -> None:
    ran = stage.te("--budget", "600", "run", "seq 10000; echo broken >&2; exit 3")

    assert ran.code == 3
    assert (ran.lines[0], ran.lines[-2:]) == ("1", ["10000", "broken"])
    assert len(ran.envelope.body) < 700
    assert ran.envelope.facts["lines"] == 10_001
    beginning = stage.te("--handle", ran.envelope.facts["handle"], "--chunk", "1")
    assert beginning.lines[:3] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("grep", "nowhere"), 1),
        (("grep", "start", "missing.txt"), 2),
        (("cat", "missing.txt"), 1),
        (("ls", "missing"), 2),
        (("find", "missing"), 1),
        (("find", ".", "-nonsense"), 1),
        (("git", "nonsense"), 1),
        (("run", "sh", "-c", "exit 42"), 42),
        (("run", "sh", "-c", "kill -9 $$"), 137),
        (("run", "no-such-program"), 127),
        (("run", "./app"), 126),
        (("--timeout", "0.3", "run", "sleep", "50"), 124),
        (("--raw", "grep", "nowhere", "app/core.py"), 1),
        (("--raw", "run", "no-such-program"), 127),
        (("grep", "-q", "start", "app/core.py"), 0),
        (("grep", "--nonsense", "x"), 2),
        (("grep",), 2),
        (("run",), 2),
        (("nonsense",), 2),
        (("--nonsense", "ls"), 2),
        (("--handle", "res_0123456789abcdef"), 5),
        (("--handle", "../../etc/passwd"), 5),
        (("--chunk", "0", "ls"), 2),
        (("--budget", "lots", "ls"), 2),
        ((), 2),
        (("--help",), 0),
        (("-h",), 0),
        (("--version",), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
@pytest.mark.feature("F215")
def test_te_ends_as_the_command_does(project: Stage, words: tuple[str, ...], code: int) -> None:
    ran = project.te(*words)

    assert ran.code == code, ran
    assert "Traceback" not in ran.err


def test_a_complaint_of_the_command_is_among_what_is_said(project: Stage) -> None:
    ran = project.te("grep", "start", "app/core.py", "missing.txt")

    assert ran.envelope.facts["exit"] == 2
    assert any("missing.txt" in sentence for sentence in ran.envelope.left_out)
    assert "app/core.py:5:def start():" in ran.lines


@pytest.mark.parametrize(
    "flags", [("-i", "-n"), ("-in",), ("--ignore-case",), ("-ri",), ("-hi",), ("-iE",), ("-H", "-i")]
)
def test_grep_takes_its_own_flags_wherever_they_stand(project: Stage, flags: tuple[str, ...]) -> None:
    before = project.te("grep", *flags, "DEF START", "app")
    after = project.te("grep", "DEF START", "app", *flags)

    assert before.lines == after.lines == ["app/core.py:5:def start():"]


def test_a_pattern_may_begin_with_a_dash(project: Stage) -> None:
    project.write("flags.txt", "--raw\n-e\n")

    assert project.te("grep", "-e", "--raw", "flags.txt").lines == ["flags.txt:1:--raw"]
    assert project.te("grep", "--", "--raw", "flags.txt").lines == ["flags.txt:1:--raw"]


def test_lines_around_a_match_stay_with_it(project: Stage) -> None:
    ran = project.te("grep", "-A1", "start", "app", "tests")

    assert ran.lines[:2] == ["app/core.py:5:def start():", "app/core.py:6-    return 1"]


def test_names_and_counts_are_ranked_too(project: Stage) -> None:
    assert project.te("grep", "-l", "start", "tests", "app/cli.py").lines == ["app/cli.py", "tests/test_core.py"]
    assert project.te("grep", "-c", "start", "tests", "app/cli.py").lines == ["app/cli.py:2", "tests/test_core.py:3"]


def test_a_folder_that_is_usually_left_aside_is_searched_when_it_is_named(project: Stage) -> None:
    assert project.te("grep", "start", "node_modules").lines == ["node_modules/x/index.js:1:function start() {}"]


def test_grep_reads_its_input_when_told_so(stage: Stage) -> None:
    assert stage.te("grep", "b", "-", stdin=b"a\nb\n").lines == ["(standard input):2:b"]


def test_find_puts_the_project_first_and_understands_every_test(project: Stage) -> None:
    project.write("app/big.bin", "x" * 5000)

    assert project.te("find", ".", "-name", "*.py", "-o", "-name", "*.js").lines[-2:] == [
        "./tests/test_core.py",
        "./node_modules/x/index.js",
    ]
    assert project.te("find", "-size", "+4k").lines == ["./app/big.bin"]
    assert project.te("find", "app", "-name", "big*", "-printf", "%s\n").lines == ["5000"]


def test_cat_and_ls_and_git_say_how_much_there_is(project: Stage) -> None:
    subprocess.run(["git", "init", "-q"], cwd=project.folder, check=True)

    assert project.te("cat", "app/cli.py").envelope.facts == {
        "lines": 3, "size": 36, "shown": 3, "truncated": False, "exit": 0,
    }  # fmt: skip
    assert project.te("ls", "app").lines == ["cli.py", "core.py"]
    assert "?? app/" in project.te("git", "status", "--short").lines


def test_an_agent_is_shown_as_much_as_its_budget_allows(stage: Stage) -> None:
    stage.write("long.txt", "a line of text\n" * 5000)

    sizes = [
        len(stage.te("cat", "long.txt", TE_AGENT_ID=agent).out) for agent in ("whoever", "qwen-local", "claude-dc")
    ]

    assert 14_000 < sizes[0] < 17_000 < sizes[1] < 29_000 < sizes[2]


def test_a_single_long_line_goes_on_in_the_next_chunk(stage: Stage) -> None:
    stage.write("one.json", "x" * 1000)

    first = stage.te("--budget", "400", "cat", "one.json")
    rest = [stage.te("--raw", "--handle", first.envelope.facts["handle"], "--chunk", n).out for n in ("2", "3")]

    assert len(first.envelope.body + "".join(rest).replace("\n", "")) == 1000


@pytest.mark.feature("F215")
def test_json_carries_the_same_facts_and_the_parts_of_each_result(project: Stage) -> None:
    said = project.te("grep", "start", "app", "--json").json

    assert said["v"] == 1
    assert said["matches"] == 4
    assert said["results"][0] == {
        "path": "app/core.py", "kind": "definition", "line": 5, "text": "def start():",
    }  # fmt: skip


@pytest.mark.feature("F215")
def test_raw_gives_the_bytes_of_the_command_itself(stage: Stage) -> None:
    (stage.folder / "bytes").write_bytes(b"\x00\xff\x1b[31m\r\n")

    assert stage.te("--raw", "cat", "bytes").raw == b"\x00\xff\x1b[31m\r\n"
    assert stage.te("cat", "--raw", "bytes").raw == b"\x00\xff\x1b[31m\r\n"


def test_flags_after_git_and_run_are_theirs(stage: Stage) -> None:
    assert stage.te("run", "echo", "--raw", "--json", "--handle").lines == ["--raw --json --handle"]


def test_where_there_is_no_home_a_temporary_one_will_do(stage: Stage) -> None:
    stage.write("long.txt", "a line of text\n" * 5000)
    shut = stage.write("file", "")

    ran = stage.te("cat", "long.txt", XDG_STATE_HOME=str(shut), TOOLWIRE_STORE__HOME=str(shut))
    more = stage.te("--handle", ran.envelope.facts["handle"], XDG_STATE_HOME=str(shut))

    assert more.lines == ran.lines
    assert [path.name for path in stage.home.iterdir()] == [f"toolwire-te-{os.getuid()}"]


def test_a_home_that_others_can_write_to_is_not_used(stage: Stage) -> None:
    stage.write("long.txt", "a line of text\n" * 5000)
    chosen = stage.home / "chosen"
    chosen.mkdir()
    chosen.chmod(0o777)

    ran = stage.te("cat", "long.txt", TOOLWIRE_STORE__HOME=str(chosen))

    assert ran.envelope.facts["handle"]
    assert list(chosen.iterdir()) == []


def test_what_is_kept_is_for_its_owner_alone(stage: Stage) -> None:
    stage.write("long.txt", "a line of text\n" * 5000)
    stage.te("cat", "long.txt")

    kept = [stage.home / "state", *(stage.home / "state").rglob("*")]

    assert [path.name for path in kept if path.is_file()] != []
    assert {path.stat().st_mode & 0o077 for path in kept if path.is_file()} == {0}


def test_what_was_kept_more_than_a_week_ago_is_forgotten(stage: Stage) -> None:
    stage.write("long.txt", "a line of text\n" * 5000)
    old = stage.te("cat", "long.txt").envelope.facts["handle"]
    for path in (stage.home / "state").rglob("*"):
        os.utime(path, (1, 1))
    stage.write("long.txt", "another line\n" * 5000)

    new = stage.te("cat", "long.txt").envelope.facts["handle"]

    assert (stage.te("--handle", old).code, stage.te("--handle", new).code) == (5, 0)


def test_a_reader_that_goes_away_is_no_error(stage: Stage) -> None:
    stage.write("long.txt", "a line of text\n" * 100_000)

    done = subprocess.run(
        ["/bin/bash", "-c", f"{TE} --agent gemini-shell cat long.txt | head -1; echo ${{PIPESTATUS[0]}}"],
        cwd=stage.folder, capture_output=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.stderr == b""
    assert done.stdout.split()[-1] in {b"0", b"141"}


def test_what_a_command_leaves_in_the_background_does_not_hold_te(stage: Stage) -> None:
    ran = stage.te("run", "sleep 300 & echo $!; echo done")

    os.kill(int(ran.lines[0]), signal.SIGKILL)  # it was still there
    assert ran.lines[1:] == ["done"]


def test_every_run_has_a_mark_of_its_own(stage: Stage) -> None:
    marks = {found[1] for found in (read(stage.te("ls").out) for _ in range(3)) if found}

    assert len(marks) == 3
    assert json.loads(stage.te("ls", "--json").out)["cmd"] == "ls"


def test_the_page_names_every_command_and_flag_of_the_help(stage: Stage) -> None:
    page = (Path(__file__).parents[2] / "docs" / "te.md").read_text(encoding="utf-8")
    helped = [line.split()[0] for line in stage.te("--help").out.splitlines() if line.startswith("  ")]

    assert {"grep", "run", "--raw", "--chunk"} <= set(helped)
    assert [word for word in helped if word != "--version," and word not in page] == []


def test_no_start_of_te_loads_what_it_does_not_need(stage: Stage) -> None:
    heavy = "pydantic typer rich httpx2 asyncio sqlite3 jsonschema_rs"
    program = f"import sys, toolwire.te.main; print([one for one in '{heavy}'.split() if one in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "[]\n"


def test_results_of_one_kind_are_in_the_order_of_their_names(stage: Stage) -> None:
    for name in ("c.txt", "a.txt", "sub/b.txt", "b.txt"):
        stage.write(name, "needle\nneedle\n")

    assert [line[:-7] for line in stage.te("grep", "needle", ".").lines] == [
        f"./{name}:{line}" for name in ("a.txt", "b.txt", "c.txt", "sub/b.txt") for line in (1, 2)
    ]
    assert stage.te("find", "-type", "f").lines == ["./a.txt", "./b.txt", "./c.txt", "./sub/b.txt"]
