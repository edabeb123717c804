"""What a docstring says about a function: its first paragraph, its parameters, its result.

Only as much of the Google, NumPy and Sphinx styles is read as a tool shows: a parser for all of a docstring takes a
tenth of a second to import, at every start of every program.
"""

import inspect
from collections.abc import Iterator

from msgspec import Struct, field

from toolwire.lazy import lazy_pattern

_GOOGLE = lazy_pattern(r"(?P<what>Args|Arguments|Params|Parameters|Other Parameters|Keyword Arg(?:ument)?s|[A-Z]\w+):")
_NUMPY = lazy_pattern(r"(?P<what>[A-Z]\w+(?: [A-Z]\w+)?)")
_SPHINX = lazy_pattern(
    r":(?P<what>param|parameter|arg|argument|key|keyword|returns?|\w+)\b(?P<about>[^:]*):(?P<text>.*)"
)
_PARAMETERS = frozenset("args arguments params parameters other keyword param parameter arg argument key".split())
_GOOGLE_ENTRY = lazy_pattern(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:(?:\s+(.*))?$")
_TYPE_FIRST = lazy_pattern(r"[\w.]+(?:\[.*?\])?(?: \| [\w.]+(?:\[.*?\])?)*:\s+")


class Docs(Struct, frozen=True):
    """A docstring, read: one line of summary, a description for each documented parameter, one for the result."""

    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


class _Section(Struct, frozen=True):
    """A part of a docstring: what it is about (a name, for Sphinx fields), its style, and its lines."""

    what: str
    style: str
    lines: list[str]
    about: str = ""


def read_docstring(text: str | None) -> Docs:
    """Understand a Google, NumPy or Sphinx docstring; plain prose gives its first paragraph."""
    if not text:
        return Docs()
    parameters: dict[str, str] = {}
    returns = ""
    prose, *sections = _sections(inspect.cleandoc(text).splitlines())
    for section in sections:
        if section.what in _PARAMETERS:
            parameters |= {name: _joined(lines) for name, lines in _entries(section)}
        elif section.what in ("returns", "return"):
            returns = returns or _result(section)
    return Docs(_paragraph(prose.lines), {name: words for name, words in parameters.items() if words}, returns)


def _sections(lines: list[str]) -> list[_Section]:
    """The prose first, then every section under its heading."""
    found = [_Section("", "", [])]
    skip = False
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        underlined = after.startswith("---") and not after.strip("-")
        if skip:
            skip = False
        elif underlined and (heading := _NUMPY.fullmatch(line.strip())):
            found.append(_Section(heading["what"].split()[0].lower(), "numpy", []))
            skip = True
        elif (not after.strip() or after[:1].isspace()) and (heading := _GOOGLE.fullmatch(line.rstrip())):
            found.append(_Section(heading["what"].split()[0].lower(), "google", []))
        elif heading := _SPHINX.fullmatch(line):
            found.append(_Section(heading["what"], "sphinx", [heading["text"]], heading["about"].strip()))
        else:
            found[-1].lines.append(line)
    return found


def _entries(section: _Section) -> Iterator[tuple[str, list[str]]]:
    """The documented parameters of a section with the lines about each."""
    match section.style:
        case "sphinx":
            yield section.about.split()[-1].lstrip("*") if section.about else "", _until_blank(section.lines)
        case "google":
            yield from _google_entries(inspect.cleandoc("\n" + "\n".join(section.lines)).splitlines())
        case _:
            yield from _numpy_entries(section.lines)


def _google_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    name, about = "", list[str]()
    for line in lines:
        if (entry := _GOOGLE_ENTRY.match(line)) and not line[:1].isspace():
            yield name, about
            name, about = entry[1], [entry[2] or ""]
        else:
            about.append(line)
    yield name, about


def _numpy_entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    names, about = list[str](), list[str]()
    for line in lines:
        if line.strip() and not line[:1].isspace():
            yield from ((name, about) for name in names)
            names, about = [name.strip(" *") for name in line.partition(":")[0].split(",")], []
        else:
            about.append(line)
    yield from ((name, about) for name in names)


def _result(section: _Section) -> str:
    if section.style == "numpy":
        return _joined([line for line in section.lines if line[:1].isspace()])
    words = _joined(_until_blank(section.lines))
    return _TYPE_FIRST.sub("", words, count=1) if section.style == "google" and _TYPE_FIRST.match(words) else words


def _paragraph(lines: list[str]) -> str:
    return _joined(_until_blank(lines))


def _until_blank(lines: list[str]) -> list[str]:
    blank = next((index for index, line in enumerate(lines) if not line.strip() and index), len(lines))
    return lines[:blank]


def _joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
