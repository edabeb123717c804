"""What a docstring says about a function: its first paragraph, its parameters, its result."""

import inspect
import re
from dataclasses import dataclass, field

import griffe

_SPHINX = re.compile(r"^\s*:(param|parameter|arg|argument|key|keyword|returns?)\b", re.MULTILINE)
_NUMPY = re.compile(r"^\s*(Parameters|Other Parameters|Returns)\s*\n\s*-{3,}\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Docs:
    """A docstring, read: one line of summary, a description for each documented parameter, one for the result."""

    summary: str = ""
    parameters: dict[str, str] = field(default_factory=dict)
    returns: str = ""


def read_docstring(text: str | None) -> Docs:
    """Understand a Google, NumPy or Sphinx docstring; plain prose gives its first paragraph."""
    if not text:
        return Docs()
    cleaned = inspect.cleandoc(text)
    parameters: dict[str, str] = {}
    returns = ""
    summary = ""
    for section in _sections(cleaned):
        match section:
            case griffe.DocstringSectionText(value=value) if not summary:
                summary = _joined(value.split("\n\n", 1)[0])
            case griffe.DocstringSectionParameters(value=items) | griffe.DocstringSectionOtherParameters(value=items):
                parameters |= {item.name.lstrip("*"): _joined(item.description) for item in items}
            case griffe.DocstringSectionReturns(value=items):
                returns = _joined(" ".join(item.description for item in items))
    return Docs(summary, parameters, returns)


def _sections(text: str) -> list[griffe.DocstringSection]:
    docstring = griffe.Docstring(text)
    if _NUMPY.search(text):
        return griffe.parse_numpy(docstring, warnings=False)
    if _SPHINX.search(text):
        return griffe.parse_sphinx(docstring, warnings=False)
    return griffe.parse_google(docstring, warnings=False, returns_named_value=False, returns_multiple_items=False)


def _joined(text: str) -> str:
    return " ".join(text.split())
