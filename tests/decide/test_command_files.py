"""The files that a command names or obeys, and commands that stay in their box."""

from posixpath import normpath

import pytest

from toolwire.decide.command_files import command_files
from toolwire.decide.loopback import stays_in_box
from toolwire.decide.shell import read_shell

OBEYED = {
    "make test": {"makefile", "Makefile", "GNUmakefile", "test"},
    "make -C sub test": {"Makefile", "sub/Makefile"},
    "npm test": {"package.json"},
    "python3 -m tools.run": {"tools/run.py", "tools/run/__main__.py", "tools/run/__init__.py"},
    "bash build.sh": {"build.sh"},
    "cat a.txt": {"a.txt"},
}


@pytest.mark.parametrize("text", OBEYED)
def test_the_files_that_a_command_names_or_obeys(text: str) -> None:
    assert OBEYED[text] <= set(map(normpath, command_files(text, ".", ("/w",)).paths))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("ls -m a.b", "a/b.py"), ("python3 -c a.b", "a/b.py"), ("make", "sub/Makefile"), ("cat a > b", "b"),
        ("ls", "Makefile"), ("pytest -m slow.ones", "slow/ones.py"),
    ],
)  # fmt: skip
def test_other_words_are_not_files_that_it_obeys(text: str, path: str) -> None:
    assert path not in set(map(normpath, command_files(text, ".", ("/w",)).paths))


@pytest.mark.parametrize(
    ("text", "runs", "made"),
    [
        ("cat a", False, False), ("make", True, False), ("bash x", True, False), ("./x", True, False),
        ("", False, False), ("sub/cat a", True, False), ("cat $x", False, True), ("(((", True, True),
        ("cat a; sh b", True, False),
    ],
)  # fmt: skip
def test_a_command_may_run_other_files_or_make_words_when_it_runs(text: str, runs: bool, made: bool) -> None:
    found = command_files(text, ".", ("/w",))
    assert (found.runs, found.made) == (runs, made)


STAYS = [
    "curl localhost:8000", "curl -s http://127.0.0.1:8000/x", "curl -o f localhost", "curl -of localhost",
    "curl --url localhost", "curl --output f localhost", "curl --output=f localhost", "curl -H 'a: $x' localhost",
    "wget -q -O - http://localhost/", "nc -l 8000", "nc -lv 8000", "nc -z localhost 80", "nc localhost 80 81",
    "ping -c 1 localhost", "telnet localhost 80", "curl localhost 127.0.0.1:1",
]  # fmt: skip
LEAVES = [
    "curl example.org", "curl localhost example.org", "curl", "curl -s", "curl --proxy x localhost",
    "curl -x p localhost", "curl $opt localhost", "curl --$o localhost", "nc example.org 80", "nc localhost x",
    "nc -e sh localhost 80", "telnet", "ls localhost", "ping example.org", "curl -", "curl --url example.org",
    "nc --listen 80", "curl localhost.example.org",
]  # fmt: skip


@pytest.mark.parametrize("text", STAYS)
def test_a_command_that_names_only_loopback_stays_in_its_box(text: str) -> None:
    assert [stays_in_box(words) for words in read_shell(text).commands] == [True]


@pytest.mark.parametrize("text", LEAVES)
def test_any_other_command_may_leave_it(text: str) -> None:
    assert [stays_in_box(words) for words in read_shell(text).commands] == [False]
