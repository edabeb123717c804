"""The form of Qwen3-Coder and its relatives: a tag for each parameter, values as they are."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.outbound import CallIds, once_per_tool, to_json, words
from toolwire.wire.prompted.messages import json_in_tags, prompted_dialect

_ABOUT = """\
# Tools

You can call these functions:

<tools>
{tools}
</tools>

To call one, write exactly this, with one parameter tag for each argument and its value on lines of its own:

<tool_call>
<function=function-name>
<parameter=parameter-name>
value
</parameter>
</function>
</tool_call>

Give every required parameter. You may say something before a call, nothing after it. Results come back inside
<tool_response></tool_response>, in the order of the calls."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_MARKUP = re.compile(r"</?(?:parameter|function|tool_call)")
_SIMPLE = re.compile(r"[A-Za-z][A-Za-z0-9 _./-]*[A-Za-z0-9_]")
_LITERALS = frozenset({"true", "false", "null", "none", "nan", "inf", "infinity"})
_PLAIN_JSON = re.compile(r"[A-Za-z0-9_ .,:\"\[\]{}+-]*")
# A text that reads like another kind of value would come back as one where the schema leaves the kind open.
_LOOKS_TYPED = re.compile(r"\s*(?:[-+.0-9\[{\"'(]|(?:true|false|null|none|nan|inf(?:inity)?)\s*$|$)", re.IGNORECASE)


def tell_tools(tools: tuple[Tool, ...]) -> str:
    """The definitions and how to call them, for the system text."""
    return _ABOUT.format(tools="\n".join(_definitions(tools)))


@once_per_tool
def _definitions(tool: Tool) -> str:
    properties = tool.input_schema.get("properties")
    known = properties.items() if isinstance(properties, Mapping) else ()
    parameters = "".join(_parameter(name, schema) for name, schema in known)
    rest = {name: value for name, value in tool.input_schema.items() if name not in ("type", "properties")}
    more = "".join(f"<{name}>{json_in_tags(value)}</{name}>\n" for name, value in rest.items() if _NAME.fullmatch(name))
    return (
        f"<function>\n<name>{tool.name}</name>\n<description>{tool.description}</description>\n"
        f"<parameters>\n{parameters}{more}</parameters>\n</function>"
    )


def _parameter(name: str, schema: Any) -> str:
    fields = schema if isinstance(schema, Mapping) else {}
    lines = [f"<name>{name}</name>"]
    for key, value in fields.items():
        if _NAME.fullmatch(key):
            lines.append(f"<{key}>{value if isinstance(value, str) else json_in_tags(value)}</{key}>")
    body = "\n".join(lines)
    return f"<parameter>\n{body}\n</parameter>\n"


def write_reply(reply: Reply, ids: CallIds) -> str:  # noqa: ARG001 -- the form knows no ids
    """What the model said, its calls in tags."""
    said = [reply.content] if reply.content else []
    return "\n".join([*said, *(f"<tool_call>\n{_call(call)}\n</tool_call>" for call in reply.calls)])


def _call(call: ToolCall) -> str:
    """The call in tags; as JSON, which these models know too, where a value could be misread."""
    if not _NAME.fullmatch(call.name) or not all(_is_plain(*item) for item in call.arguments.items()):
        return json_in_tags({"name": call.name, "arguments": call.arguments})
    values = "".join(f"<parameter={name}>\n{_value(value)}\n</parameter>\n" for name, value in call.arguments.items())
    return f"<function={call.name}>\n{values}</function>"


def _is_plain(name: str, value: Any) -> bool:
    if isinstance(value, str) and _SIMPLE.fullmatch(value) and value.lower() not in _LITERALS:
        return _NAME.fullmatch(name) is not None
    if not isinstance(value, str):
        return _NAME.fullmatch(name) is not None and _PLAIN_JSON.fullmatch(_value(value)) is not None
    safe = value.isprintable() or not (value[:1].isspace() or value[-1:].isspace() or "\r" in value)
    return safe and _NAME.fullmatch(name) is not None and not _MARKUP.search(value) and not _LOOKS_TYPED.match(value)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else to_json(value).decode()


def write_results(results: Sequence[ToolResult], ids: CallIds) -> str:  # noqa: ARG001 -- results go by their order
    """One tag per result; a result cannot end its own tag."""
    answers = (words(result).replace("</tool_response", "<\\/tool_response") for result in results)
    return "\n".join(f"<tool_response>\n{answer}\n</tool_response>" for answer in answers)


DIALECT = prompted_dialect("qwen_xml", tell_tools, write_reply, write_results)
