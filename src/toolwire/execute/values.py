"""What a tool's function may return, and how it becomes the content of a result."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import orjson
from pydantic_core import PydanticSerializationError, to_jsonable_python

from toolwire.protocol.calls import Block, ErrorText, Image, Resource, Text, ToolOutput
from toolwire.protocol.values import making

_text = making(Text)
_BLOCKS = (Text, Image, Resource, ErrorText)
OWN_RESULTS = (*_BLOCKS, ToolOutput)
"""What a tool returns when it says itself what models see."""

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class NotPresentable(Exception):
    """A tool returned something that cannot be shown to a model. The text says what and what to return instead."""


def present(value: Any) -> tuple[tuple[Block, ...], Any]:
    """The content blocks for a returned value, and the value as plain JSON where it has structure."""
    if isinstance(value, str):
        return (_text(clean(value)),), None
    if value is None:
        return (Text("done"),), None
    if isinstance(value, _BLOCKS):
        return (_checked(value),), None
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, _BLOCKS) for item in value):
        return tuple(map(_checked, value)), None
    if isinstance(value, ToolOutput):
        return _blocks(value), None if value.structured is None else _structured(value.structured)[1]
    return _structured(value)


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
    if any(not isinstance(getattr(block, part.name), str) for part in fields(block)):
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
            text = json.dumps(to_jsonable_python(value, fallback=_plain), ensure_ascii=False)
        return (Text(clean(text)),), json.loads(clean(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPresentable(
            f"the tool has run, but it returned {_kind(value)}, which has no JSON form ({error}). "
            "Return text, numbers, lists, dicts with plain values, dataclasses, pydantic models or content blocks."
        ) from None


def _plain(value: Any) -> Any:
    """Called for what orjson does not know: pydantic models, sets, bytes, paths, and what is like a list or dict."""
    if hasattr(value, "model_dump"):
        return _dumped(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _text_of(bytes(value))
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    try:
        return to_jsonable_python(value)  # numbers, paths, times, addresses and what else pydantic knows
    except PydanticSerializationError:
        raise TypeError(f"{_kind(value)} inside it") from None


def _dumped(model: Any) -> Any:
    """A pydantic model as its schema names the fields."""
    try:
        return model.model_dump(mode="json", by_alias=True)
    except (PydanticSerializationError, UnicodeError):  # bytes that are no text are dealt with one by one
        return model.model_dump(by_alias=True)


def _text_of(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"data:application/octet-stream;base64,{b64encode(data).decode()}"


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{len(value)} bytes" if isinstance(value, (bytes, bytearray)) else f"a value of type {name}"
