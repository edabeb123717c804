"""What an approval for a pattern may say about a command, and what it covers."""

from typing import Any

import pytest

from toolwire import Tool
from toolwire.decide.matching import begins
from toolwire.decide.patterns import LONGEST_PATTERN, matching_approval, offered_pattern, pattern_rule, pattern_scope
from toolwire.decide.shell import read_shell
from toolwire.protocol.approvals import Approval, ApprovalCard, Scope

BASH = Tool("bash", "Run.", needs=frozenset({"shell"}))

OFFERED = {
    "make test": "make test",
    "make -C sub test": "make -C sub test",
    "python3 tests/run.py": "python3 tests/run.py",
    "python3 -u tests/run.py --fast": "python3 -u tests/run.py",
    "python3.11 tests/run.py": "python3.11 tests/run.py",
    "python3 -m pytest -q": "python3 -m pytest",
    "node x.js": "node x.js",
    "bash build.sh": "bash build.sh",
    "bash -eu build.sh all": "bash -eu build.sh",
    "sed -i s/a/b/ README.md": "sed -i",
    "sed -i 's/a/b/g' src/*.py": "sed -i",
    "./build.sh --fast": "./build.sh",
    "git commit -m a": "git commit",
    "npm test": "npm test",
    "npm run build": "npm run build",
    "cargo test --all": "cargo test",
    "touch a": "touch",
    "timeout 60 make test": "make test",
}


def approved(text: str, pattern: str, **more: Any) -> ApprovalCard:
    card = ApprovalCard("a", "t", "c", "bash", {"command": text, **more}, "d", "r", "agent", 0.0, 9.0, policy="p")
    return card.answered(Approval(granted=True, by="ann", scope=Scope.PATTERN, pattern=pattern), 1.0)


def covers(text: str, pattern: str, later: str, **more: Any) -> bool:
    return matching_approval([approved(text, pattern)], BASH, {"command": later, **more}, "p") is not None


@pytest.mark.parametrize("text", OFFERED)
def test_a_pattern_is_offered_that_names_what_is_run(text: str) -> None:
    assert offered_pattern("bash", {"command": text}) == OFFERED[text]
    assert covers(text, OFFERED[text], text)


RUNS_ANYTHING = [
    "npx cowsay", "uv run pytest", "uvx ruff", "bunx x", "pnpm dlx x", "npm exec x", "poetry run x", "sh -c ls",
    "bash -c 'make test'", "bash", "bash -s", "env A=1 ls", "env -S ls", "xargs rm", "sudo ls", "python3 -c 'print(1)'",
    "python3 -", "python3 -m timeit x", "python3 -i x.py", "node -e 1", "node -p 1", "node -r ./x y.js", "perl -e 1",
    "perl -i -pe 1 a", "ruby -e 1", "awk 1 a", "find . -delete", "eval ls", ". ./x", "ssh a ls", "watch ls",
    "docker run x", "timeout 5 npx x", "nice uv run x", "go run x.go", "deno run x.ts", "sed -i 's/a/b/e' x",
    "sed -i 's/a/b/w c' x", "sed -i -f s x", "sed -i s/a/b/ *", "rm build/x", "rm -rf build", "curl http://a/b",
    "wget a", "git push", "git rebase -x ls", "git bisect run ls", "git -c a=b commit", "npm install x", "tar xf a",
    "make $(ls)", "python3 $x", "vim x", "gdb x", "strace ls",
]  # fmt: skip


@pytest.mark.threat("T103")
@pytest.mark.parametrize("text", RUNS_ANYTHING)
def test_T103_no_pattern_is_offered_for_what_runs_anything_or_removes_or_reaches_out(text: str) -> None:
    assert offered_pattern("bash", {"command": text}) == ""


@pytest.mark.threat("T103")
@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("npx cowsay", "npx"), ("uv run pytest", "uv run"), ("uv run pytest", "uv"), ("uv run -q pytest", "uv run -q"),
        ("sh -c ls", "sh"), ("sh -c ls", "sh -c"), ("python3 x.py", "python3"), ("python3 -c 1", "python3 -c"),
        ("uv run python3 x.py", "uv run python3"), ("make test", "make"), ("node x.js", "node"), ("sudo ls", "sudo ls"),
        ("bash build.sh", "bash *"), ("xargs ls", "xargs ls"), ("sed -i 's/a/b/e' x", "sed -i"),
    ],
)  # fmt: skip
def test_T103_a_pattern_that_does_not_name_what_is_run_is_refused_with_the_reason(text: str, pattern: str) -> None:
    with pytest.raises(ValueError, match=r"would cover anything that '.*' runs; name what it runs as well"):
        pattern_rule("bash", {"command": text}, pattern)


@pytest.mark.threat("T103")
@pytest.mark.parametrize(
    ("text", "pattern", "later"),
    [
        ("make test", "make test", "make test --eval=x"), ("make test", "make test", "make test SHELL=./x"),
        ("make test", "make test", "make -f x test"), ("uv sync", "uv", "uv run x"), ("npm test", "npm", "npm exec x"),
        ("python3 tests/run.py", "python3 tests/run.py", "python3 -c x tests/run.py"),
        ("python3 tests/run.py", "python3 tests/run.py", "python3 tests/run.py; rm x"),
        ("python3 tests/run.py", "python3 tests/run.py", "python3 tests/run.py > x"),
        ("python3 tests/run.py", "python3 tests/run.py", "PYTHONPATH=x python3 tests/run.py"),
        ("python3 tests/run.py", "python3 tests/run.py", "python3 tests/run.py | sh"),
        ("bash build.sh", "bash build.sh", "bash build.sh2"), ("bash build.sh", "bash build.sh", "sh build.sh"),
        ("sed -i s/a/b/ x", "sed -i", "sed -i 's/a/b/e' x"), ("sed -i s/a/b/ x", "sed -i", "sed -i -f y x"),
        ("sed -i s/a/b/ x", "sed -i", "sed -i s/a/b/ x -f y"), ("./build.sh", "./build.sh", "cd x && ./build.sh"),
    ],
)  # fmt: skip
def test_T103_an_approved_pattern_covers_nothing_that_runs_something_else(text: str, pattern: str, later: str) -> None:
    assert covers(text, pattern, text)
    assert not covers(text, pattern, later)


RUNS_A_PROGRAM = [
    ("zip x a", "zip", "zip x a -T -TT 'sh -c id'"), ("zip x a", "zip", "zip -rTT ./x x a"),
    ("zip x a", "zip", "zip x a -T --unzip-command ./x"), ("zip x a", "zip", "zip x a -T --unzip ./x"),
    ("zip x a", "zip", "zip x *"), ("go test", "go test", "go test -exec ./x"),
    ("go test", "go test", "go test --exec=./x"),
    ("go test", "go test", "go test -toolexec ./x ./..."), ("go vet", "go vet", "go vet -vettool=./x"),
    ("go build", "go build", "go build -ldflags=-extld=./x"), ("go build", "go build", "go build -C evil"),
    ("go build", "go build", "go build -overlay x.json"),
    ("cargo test", "cargo test", "cargo test --config build.rustc-wrapper=./x"),
    ("cargo test", "cargo test", "cargo test --manifest-path evil/Cargo.toml"),
    ("npm run build", "npm run build", "npm run build --script-shell=./x"),
    ("npm run build", "npm run build", "npm run build --prefix x"),
    ("npm test", "npm test", "npm test --script-sh ./x"),
    ("npm test", "npm test", "npm test --prefix=x"), ("pnpm test", "pnpm test", "pnpm test -C x"),
    ("yarn test", "yarn test", "yarn test --cwd x"), ("pytest", "pytest", "pytest -p evil"),
    ("pytest", "pytest", "pytest -qp evil"), ("pytest", "pytest", "pytest -c evil.ini"),
    ("pytest", "pytest", "pytest @x"),
    ("pytest", "pytest", "pytest --rootdir=evil"), ("pytest", "pytest", "pytest -o addopts=-pevil"),
    ("pytest", "pytest", "pytest $x"), ("python3 -m pytest", "python3 -m pytest", "python3 -m pytest -p evil"),
    ("uv run pytest", "uv run pytest", "uv run pytest -p evil"),
    ("git commit -m a", "git", "git -c core.editor=./x commit"),
    ("git merge a", "git merge", "git merge --strategy=x a"), ("eslint a", "eslint", "eslint --rulesdir x a"),
    ("jest", "jest", "jest --testRunner ./x"), ("jest", "jest", "jest --globalSetup=./x"),
    ("mypy a", "mypy", "mypy --config-file x"),
    ("patch -p1", "patch", "patch -e a"), ("uv sync", "uv sync", "uv sync --project x"),
]  # fmt: skip


@pytest.mark.threat("T103")
@pytest.mark.parametrize(("text", "pattern", "later"), RUNS_A_PROGRAM)
def test_T103_an_approved_pattern_covers_no_option_that_runs_a_program(text: str, pattern: str, later: str) -> None:
    assert covers(text, pattern, text)
    assert not covers(text, pattern, later)


@pytest.mark.parametrize(
    ("pattern", "later"),
    [
        ("zip", "zip -r x.zip src"), ("go test", "go test -v -run TestA ./..."), ("go build", "go build -o x ./cmd"),
        ("go build", "go build -ldflags='-s -w' ."), ("cargo test", "cargo test --all --color=never -- --nocapture"),
        ("npm run build", "npm run build --silent"), ("npm test", "npm test -- --watch=false"),
        ("pytest", "pytest -xvv -k a tests"),
        ("pytest", "pytest --lf -q tests/*.py"), ("python3 -m pytest", "python3 -m pytest -q tests"),
        ("git commit", "git commit --amend --no-edit"), ("git add", "git add *"), ("git merge", "git merge --no-ff a"),
        ("eslint", "eslint --fix src"), ("mypy", "mypy --strict src"), ("patch", "patch -p1 -i a.diff"),
        ("jest", "jest --coverage"),
    ],
)  # fmt: skip
def test_ordinary_options_are_covered_by_an_approved_pattern(pattern: str, later: str) -> None:
    assert covers(pattern, pattern, later)


def test_an_option_that_runs_a_program_is_covered_where_the_pattern_is_the_whole_command() -> None:
    assert covers("go test -exec ./x", "go test -exec ./x", "go test -exec ./x")
    assert not covers("go test -exec ./x", "go test -exec ./x", "go test -exec ./x -exec ./y")


@pytest.mark.control("T103")
def test_T103_control_by_their_first_words_alone_these_commands_would_be_covered() -> None:
    for text, pattern in (("npx cowsay", "npx"), ("make test --eval=x", "make test"), ("sh -c ls", "sh")):
        [words] = read_shell(text).commands
        assert begins(words, pattern)


def test_further_words_of_a_script_are_covered() -> None:
    assert covers("python3 tests/run.py", "python3 tests/run.py", "python3 tests/run.py -v --all")
    assert covers("uv run pytest", "uv run pytest", "uv run pytest -q tests")
    assert covers("sed -i s/a/b/ x", "sed -i", "sed -i s/c/d/ y")


def test_the_same_words_in_another_folder_run_other_files_and_are_not_covered() -> None:
    assert covers("make test", "make test", "make test", workdir="./")
    assert not covers("make test", "make test", "make test", workdir="evil")


def test_what_a_pattern_covers_is_said_in_words() -> None:
    assert pattern_scope({"command": "make test"}, "make test") == "exactly this command, in this folder"
    assert "begins like this" in pattern_scope({"command": "bash build.sh"}, "bash build.sh")
    assert pattern_scope({"path": "a"}, "path is a") == "every call of this tool that fits"


def test_a_pattern_may_be_so_long_and_no_longer() -> None:
    path = "a" * (LONGEST_PATTERN - len("path is "))

    assert pattern_rule("read", {"path": path}, f"path is {path}").pattern == path
    with pytest.raises(ValueError, match=f"at most {LONGEST_PATTERN} characters"):
        pattern_rule("read", {"path": f"{path}a"}, f"path is {path}a")


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ({"path": "docs/a.md"}, "path is docs/*"), ({"path": "a.md"}, "path is a.md"), ({"path": "docs/*.md"}, ""),
        ({"url": "https://x.test/a?b"}, "url is https://x.test/*"), ({"url": "https://*.test/a"}, ""), ({"n": 1}, ""),
        ({"command": ""}, ""),
    ],
)  # fmt: skip
def test_a_pattern_is_offered_for_a_folder_or_a_host(arguments: dict[str, Any], pattern: str) -> None:
    assert offered_pattern("tool", arguments) == pattern


@pytest.mark.parametrize(
    ("arguments", "pattern", "covered"),
    [
        ({"command": "make"}, "command is make", "every call of this tool that fits"),
        ({"path": "a"}, "make", "every call of this tool that fits"),
        ({"command": "make test"}, "make test", "exactly this command, in this folder"),
        ({"command": "git commit -m a"}, "git commit", "every command in this folder that begins like this"),
    ],
)
def test_an_approver_reads_what_a_pattern_covers(arguments: dict[str, Any], pattern: str, covered: str) -> None:
    assert pattern_scope(arguments, pattern).startswith(covered)
