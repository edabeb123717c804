"""What each format costs: the tokens of a definition, a call and a result, from what would really be sent."""

from collections.abc import Iterable

from msgspec import Struct

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, ResultsMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.token_estimate import estimate_tokens
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.outbound import CallIds, to_json
from toolwire.wire.encode.request import Dialect
from toolwire.wire.formats.registry import DIALECTS

_EMPTY = Tool("", "", {})


class FormatCost(Struct, frozen=True):
    """Estimated tokens in one format. `fixed` is what telling any tool at all costs, once for a request."""

    format: str
    fixed: int
    per_tool: float
    per_call: int
    per_result: int


def format_costs(tools: Iterable[Tool] = (_EMPTY,)) -> tuple[FormatCost, ...]:
    """The cost of these tools in every format, the cheapest definitions first; without tools, what any tool costs."""
    offered = tuple(tools)
    costs = [_cost(name, dialect, offered) for name, dialect in DIALECTS.items()]
    return tuple(sorted(costs, key=lambda cost: (cost.fixed + cost.per_tool * len(offered), cost.format)))


def _cost(name: str, dialect: Dialect, tools: tuple[Tool, ...]) -> FormatCost:
    fixed = 2 * _told(dialect, (_EMPTY,)) - _told(dialect, (_EMPTY, _EMPTY))
    call = ToolCall("", {}, id="call_1", alias="call_1")
    answer = ToolResult("call_1", "", Status.SUCCESS, (Text("-"),))
    ids = CallIds(dialect.id_fits)
    said = _tokens(dialect.encode_message(Reply("-", calls=(call,)), ids))
    return FormatCost(
        name,
        fixed=fixed,
        per_tool=round((_told(dialect, tools) - fixed) / max(len(tools), 1), 1),
        per_call=said - _tokens(dialect.encode_message(Reply("-"), ids)),
        per_result=_tokens(dialect.encode_message(ResultsMessage((answer,)), ids)),
    )


def _told(dialect: Dialect, tools: tuple[Tool, ...]) -> int:
    opening = dialect.opening("", tools) if dialect.tell_tools else None
    text = str(opening["content"]) if opening else ""
    return estimate_tokens(text) + _tokens(dialect.tool_fields(tools))


def _tokens(sent: object) -> int:
    return estimate_tokens(to_json(sent).decode())
