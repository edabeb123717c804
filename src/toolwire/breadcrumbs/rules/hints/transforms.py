"""What transforms make of a context. Every error of an engine becomes one of ours here.

Templates follow Handlebars.js, without its escaping for HTML: a model reads text. They see the fields of the context,
and the whole of it as `context` where it has no such field.
"""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolwire.breadcrumbs.rules.hints.paths import Path, read_path
from toolwire.breadcrumbs.rules.hints.reading import Transform, TransformKind
from toolwire.errors import InvalidRecord
from toolwire.lazy import lazy_module, lazy_pattern

if TYPE_CHECKING:
    import dotpromptz_handlebars
    import jq
    import jsonpath_rfc9535
else:
    dotpromptz_handlebars = lazy_module("dotpromptz_handlebars")
    jq = lazy_module("jq")
    jsonpath_rfc9535 = lazy_module("jsonpath_rfc9535")

LONGEST_TEXT = 262_144
"""So many characters a field that a transform makes may have, written as JSON."""
MOST_RESULTS = 10_000
_SHOWN = 200
_JQ_MODULE = lazy_pattern(r"""(?<![.\w])(?:import|include)(?:\s|\#[^\n]*\n|@\w+)*\"""")
# What jq says of modules differs by whether a file is there, however the program asks for it.
_JQ_LOADING = lazy_pattern(r"module not found|error loading|[Cc]ould not|Too many open files")
_NO_MODULES = "import and include are not offered; write the definitions into the program"
_PLACEHOLDER = lazy_pattern(r"\{\{|\}\}|\{([^{}]*)\}")


def apply_transform(transform: Transform, context: Any) -> Any:
    """The value of one field. Raises `InvalidRecord`, with the name of the transform."""
    try:
        return _KINDS[transform.kind](transform.rule, context)
    except InvalidRecord as wrong:
        raise InvalidRecord(f"the {transform.kind} transform {transform.name!r} of llm_hints: {wrong}") from None


def load_engine(kind: TransformKind) -> None:
    """Import what a kind of transform needs. Raises `InvalidRecord` where it is not installed."""
    match kind:
        case TransformKind.TEMPLATE:
            _required(lambda: dotpromptz_handlebars.Handlebars)
        case TransformKind.EXTRACT:
            _required(lambda: jsonpath_rfc9535.compile)
        case TransformKind.JQ:
            _required(lambda: jq.compile)


def _required(use: Callable[[], Any]) -> None:
    try:
        use()
    except ImportError as missing:
        raise InvalidRecord(
            f"{missing.name} is not installed, which this needs (pip install 'toolwire[records]')"
        ) from None


def _render_template(template: str, context: Any) -> str:
    engine = dotpromptz_handlebars.Handlebars(escape_html=False)
    engine.register_helper("log", lambda _args, _options: "")  # the engine's own prints
    fields = {"context": context, **context} if isinstance(context, Mapping) else context
    try:
        return str(engine.compile(template)(fields))
    except RecursionError:
        raise InvalidRecord("the template is nested too deeply") from None
    except MemoryError:
        raise
    except Exception as wrong:  # the engine raises ValueError and a class for each thing it dislikes
        raise InvalidRecord(_short(wrong)) from None


def _extract(path: str, context: Any) -> Any:
    try:
        found = jsonpath_rfc9535.find(path, context).values()
    except RecursionError:
        raise InvalidRecord("the path or the context is nested too deeply") from None
    except MemoryError:
        raise
    except Exception as wrong:  # what a filter compares with what raises as Python would
        raise InvalidRecord(_short(wrong)) from None
    return _one_or_many(found)


def _run_jq(program: str, context: Any) -> Any:
    if _JQ_MODULE.search(program):  # what it says of a file that it cannot open would tell which files exist
        raise InvalidRecord(_NO_MODULES)
    try:
        results = iter(jq.compile(program).input_text(json.dumps(context)))
        found = [result for result, _ in zip(results, range(MOST_RESULTS + 1), strict=False)]
    except (ValueError, RecursionError) as wrong:
        raise InvalidRecord(_NO_MODULES if _JQ_LOADING.search(str(wrong)) else _short(wrong)) from None
    return _one_or_many(found)


def _one_or_many(found: list[Any]) -> Any:
    """Nothing found is null, one value is that value, several are an array."""
    if len(found) > MOST_RESULTS:
        raise InvalidRecord(f"it gives more than {MOST_RESULTS} results")
    return found[0] if len(found) == 1 else found or None


def _literal(constant: Any, _context: Any) -> Any:
    return constant


def _fill(text: str, context: Any) -> str:
    """The text with `{a.b}` replaced by what the path finds; a missing one is empty. `{{` and `}}` are braces."""
    parts: list[str] = []
    length = place = 0
    for found in _PLACEHOLDER.finditer(text):
        value = found[0][0] if found[1] is None else _as_text(_looked_up(context, read_path(found[1])))
        parts += [text[place : found.start()], value]
        length += len(value)
        if length > LONGEST_TEXT:
            raise InvalidRecord(f"it gives more than {LONGEST_TEXT} characters")
        place = found.end()
    return "".join([*parts, text[place:]])


def _looked_up(context: Any, path: Path) -> Any:
    value = context
    for step in path:
        if isinstance(value, Mapping) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _short(wrong: Exception) -> str:
    text = " ".join(str(wrong).split()) or type(wrong).__name__
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_KINDS: Mapping[TransformKind, Callable[[Any, Any], Any]] = {
    TransformKind.TEMPLATE: _render_template,
    TransformKind.EXTRACT: _extract,
    TransformKind.LITERAL: _literal,
    TransformKind.FORMAT: _fill,
    TransformKind.JQ: _run_jq,
}
