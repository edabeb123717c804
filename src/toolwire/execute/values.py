"""What a tool's function may return, and how it becomes the content of a result."""

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
from msgspec import Struct
from msgspec.structs import asdict

from toolwire.lazy import lazy_module
from toolwire.protocol.calls import Block, ErrorText, Image, Resource, Text, ToolOutput

if TYPE_CHECKING:
    from pydantic_core import _pydantic_core as pydantic_core
else:
    # Loaded for what orjson does not know: few tools return such values.
    pydantic_core = lazy_module("pydantic_core._pydantic_core")

_BLOCKS = (Text, Image, Resource, ErrorText)
OWN_RESULTS = (*_BLOCKS, ToolOutput)
"""What a tool returns when it says itself what models see."""

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


LARGE_CHARS = 1 << 20
_LARGE_ITEMS = 4_000
_ITEMS_AT_ONCE = 500
_SCALARS = frozenset({int, float, bool, type(None)})


class NotPresentable(Exception):
    """A tool returned something that cannot be shown to a model. The text says what and what to return instead."""


def present(value: Any) -> tuple[tuple[Block, ...], Any]:
    """The content blocks for a returned value, and the value as plain JSON where it has structure."""
    if isinstance(value, str):
        return (Text(clean(value)),), None
    if value is None:
        return (Text("done"),), None
    if isinstance(value, _BLOCKS):
        return (_checked(value),), None
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, _BLOCKS) for item in value):
        return tuple(map(_checked, value)), None
    if isinstance(value, ToolOutput):
        return _blocks(value), None if value.structured is None else _structured(value.structured)[1]
    return _structured(value)


def is_large(value: Any) -> bool:
    """Whether it takes so long to make JSON of a value that the event loop should not wait for it."""
    if type(value) is str:  # what most tools return
        return len(value) > LARGE_CHARS
    if type(value) in _SCALARS:
        return False
    left, chars = [value], 0
    for _ in range(_LARGE_ITEMS):
        if not left:
            return False
        one = left.pop()
        if isinstance(one, (str, bytes)):
            chars += len(one)
        elif isinstance(one, dict):
            left += islice(one.values(), _LARGE_ITEMS)
        elif isinstance(one, (list, tuple)):
            left += one[:_LARGE_ITEMS]
        elif type(one) not in _SCALARS:
            chars += getattr(one, "nbytes", 0)
            left += _values_of(one)
        if chars > LARGE_CHARS:
            return True
    return True


def _values_of(value: Any) -> Iterable[Any]:
    """The fields of a dataclass or a pydantic model; other objects have attributes that no JSON shows."""
    if isinstance(value, type) or not (hasattr(value, "__dataclass_fields__") or hasattr(value, "model_dump")):
        return ()
    return getattr(value, "__dict__", {}).values()


def present_large(value: Any) -> tuple[tuple[Block, ...], Any]:
    """As `present`, for a thread. Lists and dicts are written in pieces, so that other threads get their turn.

    No model is shown as much, and a second copy would take long to make and to drop: there is no plain value.
    """
    if isinstance(value, (str, ToolOutput, *_BLOCKS)) or not isinstance(value, (list, tuple, dict)):
        return present(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, _BLOCKS) for item in value):
        return present(value)
    try:
        return (Text(clean(b"".join(_pieces(value)).decode("utf-8", "surrogatepass"))),), None
    except RecursionError as error:
        raise _no_json(value, error) from None


def _pieces(value: Any) -> Iterator[bytes]:
    """The JSON of a value, in pieces."""
    if not is_large(value) or not isinstance(value, (list, tuple, dict)):
        yield _json(value)
    elif isinstance(value, dict):
        yield b"{"
        for number, (key, item) in enumerate(value.items()):
            yield (b"," if number else b"") + _json({key: None})[1:-5]
            yield from _pieces(item)
        yield b"}"
    else:
        yield b"["
        for begin in range(0, len(value), _ITEMS_AT_ONCE):
            yield b"," if begin else b""
            yield from _piece_of_list(value[begin : begin + _ITEMS_AT_ONCE])
        yield b"]"


def _piece_of_list(items: Sequence[Any]) -> Iterator[bytes]:
    if not is_large(items):
        yield _json(items)[1:-1]
        return
    for number, item in enumerate(items):
        yield b"," if number else b""
        yield from _pieces(item)


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=_plain, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        text = _patiently(value)[0][0]
        return text.text.encode() if isinstance(text, Text) else b""


def clean(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be stored and sent."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _blocks(output: ToolOutput) -> tuple[Block, ...]:
    content: Any = output.content
    if not isinstance(content, (list, tuple)) or not all(isinstance(item, _BLOCKS) for item in content):
        raise NotPresentable("the tool returned a ToolOutput whose content is not a tuple of content blocks.")
    return tuple(map(_checked, content))


def _checked(block: Block) -> Block:
    """A content block whose fields are what they must be; a tool may have put anything there."""
    if any(not isinstance(getattr(block, name), str) for name in block.__struct_fields__):
        raise NotPresentable(f"the tool returned a {type(block).__name__} block whose fields are not all text.")
    return type(block)(clean(block.text)) if type(block) is Text else block


def _structured(value: Any) -> tuple[tuple[Block, ...], Any]:
    try:
        body = orjson.dumps(value, default=_plain, option=_OPTIONS)
        structured = value if type(value) in (int, bool) else orjson.loads(body)
    except (TypeError, ValueError, RecursionError):
        return _patiently(value)
    return (Text(body.decode()),), structured


def _patiently(value: Any) -> tuple[tuple[Block, ...], Any]:
    """The same for what orjson refuses and JSON can say: long integers, half a character, keys of other types."""
    try:
        try:
            text = json.dumps(value, default=_plain, ensure_ascii=False)
        except TypeError:
            text = json.dumps(pydantic_core.to_jsonable_python(value, fallback=_plain), ensure_ascii=False)
        return (Text(clean(text)),), json.loads(clean(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise _no_json(value, error) from None


def _no_json(value: Any, error: Exception) -> NotPresentable:
    return NotPresentable(
        f"the tool has run, but it returned {_kind(value)}, which has no JSON form ({error}). "
        "Return text, numbers, lists, dicts with plain values, dataclasses, pydantic models or content blocks."
    )


def _plain(value: Any) -> Any:
    """Called for what orjson does not know: models, structs, sets, bytes, paths, and what is like a list or dict."""
    if hasattr(value, "model_dump"):
        return _dumped(value)
    if isinstance(value, Struct):
        return asdict(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _text_of(bytes(value))
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    try:
        return pydantic_core.to_jsonable_python(value)  # numbers, paths, times, addresses and what else pydantic knows
    except pydantic_core.PydanticSerializationError:
        raise TypeError(f"{_kind(value)} inside it") from None


def _dumped(model: Any) -> Any:
    """A pydantic model as its schema names the fields."""
    try:
        return model.model_dump(mode="json", by_alias=True)
    except (pydantic_core.PydanticSerializationError, UnicodeError):  # bytes that are no text are dealt with one by one
        return model.model_dump(by_alias=True)


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"data:application/octet-stream;base64,{b64encode(data).decode()}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{len(value)} bytes" if isinstance(value, (bytes, bytearray)) else f"a value of type {name}"
