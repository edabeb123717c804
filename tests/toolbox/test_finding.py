"""Finding files by name and by content: within bounds, in linear time, through no link."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Grant
from toolwire.testing import MemoryFiles
from toolwire.toolbox import (
    LocalFiles,
    find_tool,
    glob_tool,
    grep_tool,
    list_tool,
    search_code_tool,
    stat_tool,
)
from toolwire.toolbox.files.patterns import Pattern, glob

Call = Callable[..., Any]
FILES = LocalFiles()
LIST, GLOB, FIND, STAT = list_tool(FILES), glob_tool(FILES), find_tool(FILES), stat_tool(FILES)
GREP, SEARCH = grep_tool(FILES), search_code_tool(FILES)


@pytest.fixture
def project(workspace: Path) -> Path:
    for path, text in {
        "README.md": "# Project\nRun main.\n",
        "src/main.py": "import os\n\n\ndef main() -> None:\n    print('Hello')\n",
        "src/settings.py": "def load_settings(path):\n    return path\n\n\nTIMEOUT = 5  # TODO: settings\n",
        "src/deep/er/util.ts": "export function loadSettings() {}\n",
        "tests/test_settings.py": "def test_load_settings():\n    load_settings('x')\n",
        ".hidden/secret.py": "TODO hidden\n",
        ".git/config": "TODO git\n",
        "node_modules/x/index.js": "TODO vendored\n",
        "windows.txt": "one\r\nTODO two\r\n",
    }.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(text.encode())
    (workspace / "picture.png").write_bytes(b"\x89PNG\0TODO")
    (workspace / "link.py").symlink_to("src/main.py")
    (workspace / "loop").symlink_to(".")
    return workspace


@pytest.mark.feature("F249")
@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.py", ".", [".hidden/secret.py", "link.py", "src/main.py", "src/settings.py", "tests/test_settings.py"]),
        ("src/*.py", ".", ["src/main.py", "src/settings.py"]),
        ("**/*.ts", ".", ["src/deep/er/util.ts"]),
        ("src/**/util.ts", ".", ["src/deep/er/util.ts"]),
        ("*.{ts,md}", ".", ["README.md", "src/deep/er/util.ts"]),
        ("[Rr]eadme.md", ".", []),
        ("[Rr]EADME.md", ".", ["README.md"]),
        ("m??n.py", ".", ["src/main.py"]),
        ("*.py", "src", ["src/main.py", "src/settings.py"]),
        ("main.py", "src", ["src/main.py"]),
        ("src/main.py", "src", ["src/main.py"]),
        ("*.rs", ".", []),
    ],
)
def test_glob_finds_files_by_path(
    call: Call, project: Path, granted: Context, pattern: str, path: str, found: list[str]
) -> None:
    assert sorted(call(GLOB, granted, pattern=pattern, path=path)["paths"]) == sorted(found)


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("./src/*", "src/x", True),
        ("**", "a/b/c", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a*b", "a/b", False),
        ("{a,b}{c,d}", "bc", True),
        ("{a,{b,c}}", "c", True),
        ("{a", "{a", True),
        ("a}", "a}", True),
        ("}{", "}{", True),
        ("a,b", "a,b", True),
        ("[!a]x", "bx", True),
        ("[!a]x", "ax", False),
        ("[]", "[]", True),
        ("a.b", "axb", False),
        ("(a|b)+", "(a|b)+", True),
        ("ä*", "äé", True),
    ],
)
def test_file_patterns_mean_what_shells_mean(pattern: str, text: str, matches: bool) -> None:
    assert glob(pattern).matches(text) is matches


@pytest.mark.feature("F249")
def test_grep_shows_lines_with_path_and_number_and_skips_what_is_not_text(
    call: Call, project: Path, granted: Context
) -> None:
    found = call(GREP, granted, pattern="TODO")
    assert [(match["path"], match["line"], match["text"]) for match in found["matches"]] == [
        ("windows.txt", 2, "TODO two"),
        (".hidden/secret.py", 1, "TODO hidden"),
        ("src/settings.py", 5, "TIMEOUT = 5  # TODO: settings"),
    ]
    assert not found["truncated"]
    assert "node_modules" in found["note"]
    assert ".git" in found["note"]


@pytest.mark.feature("F249")
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": r"^def \w+_settings"}, ["src/settings.py:1", "tests/test_settings.py:1"]),
        ({"pattern": "LOAD", "ignore_case": True, "include": "*.ts"}, ["src/deep/er/util.ts:1"]),
        ({"pattern": "main.", "literal": True}, ["README.md:2"]),
        ({"pattern": "two$", "path": "windows.txt"}, ["windows.txt:2"]),
        ({"pattern": "^two"}, []),
        ({"pattern": r"\Aimport"}, ["src/main.py:1"]),
        ({"pattern": r"(?i)HELLO"}, ["src/main.py:5"]),
        ({"pattern": "print", "path": "src"}, ["src/main.py:5"]),
        ({"pattern": "print", "path": "link.py"}, ["link.py:5"]),
        ({"pattern": "print", "path": "loop"}, ["loop/src/main.py:5"]),
        ({"pattern": "[", "literal": True}, []),
    ],
)
def test_grep_reads_expressions_line_by_line(
    call: Call, project: Path, granted: Context, arguments: dict[str, Any], lines: list[str]
) -> None:
    found = call(GREP, granted, **arguments)["matches"]
    assert sorted(f"{match['path']}:{match['line']}" for match in found) == lines


@pytest.mark.parametrize("pattern", ["(", "[a", "(?=a)b", r"(a)\1", "(a{999}){999}", "*", "a{2,1}", "[z-a]", "\\"])
def test_an_expression_that_cannot_be_searched_for_is_answered_with_advice(
    project: Path, granted: Context, pattern: str
) -> None:
    with pytest.raises(ToolFailure, match="put a backslash before") as raised:
        GREP(granted, pattern)
    assert raised.value.code is Code.INVALID_PARAMS
    assert not GREP(granted, pattern, literal=True)["truncated"]


def test_a_file_pattern_that_makes_no_sense_is_said_to_be_one(granted: Context) -> None:
    with pytest.raises(ToolFailure, match="is not a file pattern"):
        GLOB(granted, "[z-a]*")


def test_more_matches_than_asked_for_are_said_to_be_there(call: Call, workspace: Path, granted: Context) -> None:
    (workspace / "a.txt").write_text("x\n" * 50)
    found = call(GREP, granted, pattern="x", max_results=10)
    assert len(found["matches"]) == 10
    assert found["truncated"]
    assert "more than 10" in found["note"]
    exactly = call(GREP, granted, pattern="x", max_results=50)
    assert (len(exactly["matches"]), exactly["truncated"]) == (50, False)


@pytest.mark.feature("F249")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "SETTINGS"}, ["src/settings.py", "tests/test_settings.py"]),
        ({"pattern": "er", "type": "dir"}, ["src/deep/er"]),
        (
            {"pattern": "*.PY", "type": "file"},
            [".hidden/secret.py", "src/main.py", "src/settings.py", "tests/test_settings.py"],
        ),
        ({"pattern": "loop"}, ["loop"]),
        ({"pattern": "src/*.py"}, ["src/main.py", "src/settings.py"]),
        ({"pattern": "util", "path": "src/deep"}, ["src/deep/er/util.ts"]),
    ],
)
def test_find_looks_for_names_whatever_their_case(
    call: Call, project: Path, granted: Context, arguments: dict[str, Any], found: list[str]
) -> None:
    assert sorted(one["path"] for one in call(FIND, granted, **arguments)["found"]) == found


def test_list_shows_a_folder_and_stat_one_thing(call: Call, project: Path, granted: Context) -> None:
    entries = call(LIST, granted)["entries"]
    assert [(one["name"], one["type"]) for one in entries] == [
        ("README.md", "file"),
        ("link.py", "link"),
        ("loop", "link"),
        ("node_modules", "dir"),
        ("picture.png", "file"),
        ("src", "dir"),
        ("tests", "dir"),
        ("windows.txt", "file"),
    ]
    assert ".git" in [one["name"] for one in call(LIST, granted, include_hidden=True)["entries"]]
    os.utime(project / "README.md", (0, 0))
    assert call(STAT, granted, path="README.md") == {
        "path": "README.md",
        "type": "file",
        "size": 20,
        "modified": "1970-01-01T00:00:00+00:00",
        "mode": "644",
    }
    assert call(STAT, granted, path="link.py")["type"] == "link"
    with pytest.raises(ToolFailure, match="use read"):
        call(LIST, granted, path="README.md")
    with pytest.raises(ToolFailure, match=r"did you mean README.md\?"):
        call(STAT, granted, path="READM.md")


@pytest.mark.feature("F261")
def test_search_code_puts_definitions_first_and_tests_last(call: Call, project: Path, granted: Context) -> None:
    hits = call(SEARCH, granted, query="where do we load the settings?")["hits"]
    kinds = [(hit["path"], hit["kind"]) for hit in hits]
    assert kinds[0] in {("src/settings.py", "definition"), ("src/deep/er/util.ts", "definition")}
    assert {path for path, kind in kinds[:2]} == {"src/settings.py", "src/deep/er/util.ts"}
    assert kinds.index(("tests/test_settings.py", "test")) > 1
    only = call(SEARCH, granted, query="settings", language="typescript")["hits"]
    assert {hit["path"] for hit in only} == {"src/deep/er/util.ts"}
    assert call(SEARCH, granted, query="zebra")["hits"] == []


def test_several_granted_folders_are_searched(call: Call, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text("word\n")
    context = Context(grant=Grant(roots=(str(tmp_path / "a"), str(tmp_path / "b"))), timeout_s=30)
    assert [match["path"] for match in call(GREP, context, pattern="word")["matches"]] == ["a.txt", "b.txt"]


def test_the_same_tools_search_files_that_are_on_no_disk(call: Call) -> None:
    files = MemoryFiles({"src/a.py": "x = 1\n", "b.md": "x\n"})
    context = Context(grant=Grant(roots=("/workspace",)))
    assert call(grep_tool(files), context, pattern="x", include="*.py")["matches"] == [
        {"path": "src/a.py", "line": 1, "text": "x = 1"}
    ]
    assert call(glob_tool(files), context, pattern="*.md")["paths"] == ["b.md"]


@pytest.mark.parametrize("tool", [GLOB, GREP, FIND])
def test_a_path_that_leads_out_is_not_searched(tmp_path: Path, workspace: Path, granted: Context, tool: Any) -> None:
    (tmp_path / "secret.txt").write_text("SECRET")
    (workspace / "out").symlink_to("..")
    for path in ("out", "..", "/etc", "out/secret.txt"):
        with pytest.raises(ToolFailure) as raised:
            tool(granted, "SECRET", path)
        assert raised.value.code in {Code.PERMISSION_DENIED, Code.INVALID_PARAMS, Code.NOT_FOUND}


def test_a_pattern_never_misses_a_line_by_looking_at_the_whole_text_first() -> None:
    texts = ["one\ntwo", "\n\n", "x\ny\n", "a b\n c"]
    for expression in ("^two$", "two", r"\bone\b", "e$", "^$", r"\s", "[^a]", "o.*o", r"\Bw"):
        pattern = Pattern(expression)
        for text in texts:
            if any(pattern.matches(line) for line in text.split("\n")):
                assert pattern.may_match_a_line_of(text), (expression, text)
