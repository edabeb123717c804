"""Tools that search in files: grep by a pattern, search_code by words, best hits first."""

from collections.abc import Iterator
from typing import Annotated, NamedTuple, TypedDict

from toolwire.define.fields import Field
from toolwire.protocol.context import Context
from toolwire.protocol.files import FileOps
from toolwire.protocol.tools import Tool
from toolwire.toolbox.files.finding import MostResults, PatternArgument
from toolwire.toolbox.files.patterns import Pattern, glob
from toolwire.toolbox.files.ranking import RankedLine, best, rank, words_of
from toolwire.toolbox.files.reading import PathArgument
from toolwire.toolbox.files.ruled_files import LOOKS, files_within_rules
from toolwire.toolbox.files.tree import TreeEntry, Walk, starts
from toolwire.toolbox.kinds import walking

LARGEST_SEARCHED = 16 * 1024 * 1024
LARGEST_CODE = 1024 * 1024
LONGEST_LINE = 300
_LINES_BETWEEN_LOOKS = 4096
_FIRST = 64 * 1024
_MOST_RANKED = 10_000


class Match(TypedDict):
    path: Annotated[str, Field(description="The file, relative to the workspace.")]
    line: Annotated[int, Field(description="Number of the line; the first is 1.")]
    text: Annotated[str, Field(description="The line, cut if it is long.")]


class GrepOutput(TypedDict):
    matches: Annotated[list[Match], Field(description="The lines that match, by path and line.")]
    files_searched: Annotated[int, Field(description="How many text files were searched.")]
    truncated: Annotated[bool, Field(description="Whether there may be more matches.")]
    note: Annotated[str, Field(description="What was left out and why; empty if nothing.")]


def grep_tool(files: FileOps) -> Tool:
    """The tool that searches file contents for a pattern through `files`."""

    @walking(
        name="grep",
        examples=({"pattern": "def main"}, {"pattern": r"TODO|FIXME", "path": "src", "include": "*.py"}),
    )
    def grep(
        context: Context,
        pattern: PatternArgument,
        path: PathArgument = ".",
        include: Annotated[str, Field(max_length=1000)] = "",
        max_results: MostResults = 100,
        ignore_case: bool = False,
        literal: bool = False,
    ) -> GrepOutput:
        """Search file contents for a pattern, line by line. Binary files are skipped and links are not followed.

        Args:
            pattern: A regular expression without look-around and back references.
            path: The folder or file to search, relative to the workspace.
            include: Search only files that match this, such as *.py or src/**/*.ts.
            max_results: How many lines to show at most.
            ignore_case: Whether capital and small letters are the same.
            literal: Whether the pattern is plain text rather than an expression.
        """
        wanted = Pattern(pattern, ignore_case=ignore_case, literal=literal)
        allowed = files_within_rules(files, context, LOOKS, path)
        walk = Walk(allowed, starts(allowed, path, context), context)
        matches: list[Match] = []
        searched = 0
        for each in _files(walk, include):
            text = _text(allowed, each, walk, LARGEST_SEARCHED)
            searched += text is not None
            if text is not None and wanted.may_match_a_line_of(text):
                found = _matches(wanted, text, each.path, walk, max_results + 1 - len(matches))
                matches += found
                if found:
                    context.read_file(each.root, each.path)
            if len(matches) > max_results or walk.is_out_of_time():
                break
        return _grep_output(matches, max_results, searched, walk)

    return grep


def matching_lines(
    text: str, pattern: str, *, ignore_case: bool = False, literal: bool = False
) -> list[tuple[int, str]]:
    """The lines of a text that match, with their numbers: grep for text that is in no file. Raises ToolFailure."""
    wanted = Pattern(pattern, ignore_case=ignore_case, literal=literal)
    return [
        (number, line) for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1) if wanted.matches(line)
    ]


class CodeHit(TypedDict):
    path: Annotated[str, Field(description="The file, relative to the workspace.")]
    line: Annotated[int, Field(description="Number of the line; the first is 1.")]
    text: Annotated[str, Field(description="The line, cut if it is long.")]
    kind: Annotated[str, Field(description="definition, use or test.")]


class CodeSearchOutput(TypedDict):
    hits: Annotated[list[CodeHit], Field(description="The lines that fit best, best first, a few of each file.")]
    files_searched: Annotated[int, Field(description="How many text files were searched.")]
    truncated: Annotated[bool, Field(description="Whether there are more hits or not everything was searched.")]
    note: Annotated[str, Field(description="What was left out and why; empty if nothing.")]


def search_code_tool(files: FileOps) -> Tool:
    """The tool that looks for code by words through `files`, definitions first and tests last."""

    @walking(
        name="search_code",
        reads=("file:.",),
        examples=({"query": "where are settings loaded"}, {"query": "parse reply", "language": "python", "limit": 5}),
    )
    def search_code(
        context: Context,
        query: Annotated[str, Field(min_length=1, max_length=500)],
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        language: Annotated[str, Field(max_length=30)] = "",
    ) -> CodeSearchOutput:
        """Search the code of the workspace for words; definitions come first, tests last. For exact text use grep.

        Args:
            query: Words or names to look for; parts of names such as parseReply or parse_reply count too.
            limit: How many lines to show at most.
            language: Search only files of this language, such as python, rust or js.
        """
        words = words_of(query)
        allowed = files_within_rules(files, context, LOOKS)
        walk = Walk(allowed, starts(allowed, ".", context), context)
        lines: list[RankedLine] = []
        searched = 0
        for each in _files(walk, _SUFFIXES.get(language.lower(), f"*.{language}") if language else ""):
            text = _text(allowed, each, walk, LARGEST_CODE)
            searched += text is not None
            found = best(text or "", each.path, words)
            lines += found
            if found and len(context.told) < _MOST_RANKED:
                context.read_file(each.root, each.path)
            if len(lines) > _MOST_RANKED:
                lines = sorted(lines, key=rank)[: _MOST_RANKED // 2]
            if walk.is_out_of_time():
                break
        lines.sort(key=rank)
        hits: list[CodeHit] = [
            {"path": hit.path, "line": hit.line, "text": cut_line(hit.text.strip()), "kind": hit.kind}
            for hit in lines[:limit]
        ]
        cut = len(lines) > limit or walk.cut_short
        return {"hits": hits, "files_searched": searched, "truncated": cut, "note": " ".join(walk.notes)}

    return search_code


class _Line(NamedTuple):
    number: int
    text: str


_SUFFIXES = {
    "python": "*.{py,pyi}",
    "javascript": "*.{js,jsx,mjs,cjs}",
    "js": "*.{js,jsx,mjs,cjs}",
    "typescript": "*.{ts,tsx}",
    "rust": "*.rs",
    "ruby": "*.rb",
    "c": "*.{c,h}",
    "c++": "*.{cc,cpp,cxx,h,hh,hpp}",
    "cpp": "*.{cc,cpp,cxx,h,hh,hpp}",
    "c#": "*.cs",
    "shell": "*.{sh,bash}",
    "markdown": "*.md",
    "kotlin": "*.{kt,kts}",
}


def _files(walk: Walk, include: str) -> Iterator[TreeEntry]:
    wanted = glob(include) if include else None
    for each in walk:
        if each.entry.kind == "file" and (wanted is None or wanted.matches(each.path)):
            yield each


def _text(files: FileOps, each: TreeEntry, walk: Walk, most: int) -> str | None:
    """The text of a file; None for a binary one and for one that cannot be read."""
    try:
        with files.open(each.root, each.path) as file:
            head = file.read(_FIRST)
            if b"\0" in head:
                return None
            body = head + file.read(most - len(head) + 1)
    except OSError:
        return None
    if len(body) > most:
        walk.note(f"Of files larger than {most // 2**20} MiB only the beginning was searched.")
    return body[:most].decode("utf-8", "replace").replace("\r\n", "\n")


def _matches(wanted: Pattern, text: str, path: str, walk: Walk, most: int) -> list[Match]:
    found: list[Match] = []
    for line in _lines(text):
        if wanted.matches(line.text):
            found.append({"path": path, "line": line.number, "text": cut_line(line.text)})
            if len(found) == most:
                break
        if line.number % _LINES_BETWEEN_LOOKS == 0 and walk.is_out_of_time():
            break
    return found


def _lines(text: str) -> Iterator[_Line]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, 1):
        yield _Line(number, line)


def cut_line(line: str) -> str:
    """A line that is not too long to be shown, with a mark where it was cut."""
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}… [{len(line) - LONGEST_LINE} more characters]"


def _grep_output(matches: list[Match], most: int, searched: int, walk: Walk) -> GrepOutput:
    more = len(matches) > most
    note = [f"There are more than {most}; narrow the pattern, the path or include."] if more else []
    return {
        "matches": matches[:most],
        "files_searched": searched,
        "truncated": more or walk.cut_short,
        "note": " ".join([*note, *walk.notes]),
    }
