from typing import Annotated, Literal

from toolwire import Context, Effect, Tier, tool


@tool(tier=Tier.WALK, needs={"file_read"}, effect=Effect.PURE, category="file", reads=("file:{path}",))
async def head(
    path: str,
    lines: Annotated[int, "How many lines to give."] = 10,
    order: Literal["first", "last"] = "first",
    *,
    context: Context,
) -> list[str]:
    """Give some lines of a file.

    Args:
        path: The file, inside the workspace.
        order: From which end to count.
    """
    context.progress(f"reading {path}", 0.5)
    return []


assert list(head.input_schema["properties"]) == ["path", "lines", "order"]  # the context is not the model's business
assert head.input_schema["required"] == ["path"]
assert head.input_schema["properties"]["lines"]["description"] == "How many lines to give."
assert head.output_schema == {"type": "array", "items": {"type": "string"}}
assert (head.timeout_s, head.max_timeout_s) == (5, 30)  # what the category gives
