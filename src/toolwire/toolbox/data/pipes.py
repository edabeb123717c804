"""Two tools as one: what the first gives goes into an argument of the second."""

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Effect, InProcess, Tier, Tool
from toolwire.toolbox.files.finding import MostResults, PatternArgument
from toolwire.toolbox.files.searching import cut_line, matching_lines

_GRAVITY = list(Effect)


class TextMatch(TypedDict):
    line: Annotated[int, Field(description="Number of the line in the text; the first is 1.")]
    text: Annotated[str, Field(description="The line, cut if it is long.")]


class GrepTextOutput(TypedDict):
    matches: Annotated[list[TextMatch], Field(description="The lines that match.")]
    truncated: Annotated[bool, Field(description="Whether there are more.")]


def grep_text_tool() -> Tool:
    """The tool that searches a given text, so that the output of another can be searched."""

    @tool(
        name="grep_text",
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="utility",
        examples=({"text": "one\ntwo\n", "pattern": "^t"},),
    )
    def grep_text(
        text: Annotated[str, Field(max_length=4_000_000)],
        pattern: PatternArgument,
        ignore_case: bool = False,
        max_results: MostResults = 100,
    ) -> GrepTextOutput:
        """Search a text for a pattern, line by line.

        Args:
            text: The text to search.
            pattern: A regular expression without look-around and back references.
            ignore_case: Whether capital and small letters are the same.
            max_results: How many lines to show at most.
        """
        found = matching_lines(text, pattern, ignore_case=ignore_case)
        matches: list[TextMatch] = [{"line": line, "text": cut_line(words)} for line, words in found[:max_results]]
        return {"matches": matches, "truncated": len(found) > max_results}

    return grep_text


def pipe(first: Tool, second: Tool, *, take: str, into: str, name: str, description: str) -> Tool:
    """One tool that runs two: the field `take` of what `first` gives becomes the argument `into` of `second`.

    It takes the other arguments of both, asks for what both need, and is as grave as the graver of the two. Both must
    be plain functions of this process. Raises DefinitionError when they do not fit together.
    """
    ours, theirs = _function(first), _function(second)
    mine, yours = dict(_properties(first)), dict(_properties(second))
    if into not in yours:
        raise DefinitionError(f"{second.name!r} takes no {into!r}; it takes {', '.join(yours)}")
    del yours[into]
    if both := sorted(mine.keys() & yours.keys()):
        raise DefinitionError(f"{first.name!r} and {second.name!r} both take {both[0]!r}, so they cannot be one tool")
    required = [*first.input_schema.get("required", ()), *second.input_schema.get("required", ())]

    def invoke(arguments: Mapping[str, Any], context: Any) -> Any:
        given = ours.invoke({key: value for key, value in arguments.items() if key in mine}, context)
        rest = {key: value for key, value in arguments.items() if key in yours}
        return theirs.invoke({**rest, into: given[take]}, context)

    return Tool(
        name=name,
        description=description,
        input_schema={
            "type": "object",
            "properties": {**mine, **yours},
            "required": [key for key in required if key != into],
            "additionalProperties": False,
        },
        output_schema=second.output_schema,
        tier=max(first.tier, second.tier),
        needs=first.needs | second.needs,
        effect=max(first.effect, second.effect, key=_GRAVITY.index),
        reads=(*first.reads, *second.reads),
        writes=(*first.writes, *second.writes),
        requires_confirmation=first.requires_confirmation or second.requires_confirmation,
        category=first.category,
        timeout_s=first.timeout_s + second.timeout_s,
        max_timeout_s=first.max_timeout_s + second.max_timeout_s,
        target=InProcess(invoke, invoke, is_async=False),
    )


def _properties(tool: Tool) -> Mapping[str, Any]:
    found = tool.input_schema.get("properties", {})
    assert isinstance(found, Mapping)
    return found


def _function(tool: Tool) -> InProcess:
    if not isinstance(tool.target, InProcess) or tool.target.is_async:
        raise DefinitionError(f"{tool.name!r} is not a plain function of this process, so it cannot be piped")
    return tool.target
