"""An agent that keeps notes on disk: two tools, one shared resource, a grant, and an audit log to read afterwards.

Runs with no key and no server: the model follows a script. Give `Agent` a model string to use a real one.
"""

import asyncio
import tempfile
from pathlib import Path

from toolwire import Agent, Effect, Grant, SqliteStore, Tier, ToolFailure, tool
from toolwire.testing import ScriptedModel, call


def note_tools(folder: Path) -> list[object]:
    """Tools get what they touch; the model only ever sees names and arguments."""

    @tool(tier=Tier.WALK, needs={"file_write"}, writes=("note:{title}",), effect=Effect.IDEMPOTENT)
    def write_note(title: str, text: str) -> str:
        """Write a note, replacing one with the same title.

        Args:
            title: One word.
            text: What to remember.
        """
        if not title.isidentifier():
            raise ToolFailure(f"{title!r} is not one word; choose a title such as 'shopping'.")
        (folder / f"{title}.txt").write_text(text, encoding="utf-8")
        return f"kept {title}"

    @tool(tier=Tier.CRAWL, needs={"file_read"}, reads=("note:{title}",), effect=Effect.PURE)
    def read_note(title: str) -> str:
        """Read a note back."""
        try:
            return (folder / f"{title}.txt").read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ToolFailure(f"There is no note {title!r}.") from None

    return [write_note, read_note]


async def main(folder: Path) -> None:
    model = ScriptedModel(
        [call("write_note", title="shopping", text="milk"), call("write_note", title="to do", text="call Ada")],
        call("write_note", title="todo", text="call Ada"),
        call("read_note", title="shopping"),
        "You have two notes; shopping says: milk.",
    )
    grant = Grant(permissions=frozenset({"file_read", "file_write"}))
    async with await SqliteStore.at(folder / ".toolwire") as store:
        answer = await Agent(model, note_tools(folder), grant=grant, store=store).ask("Remember milk, and to call Ada.")
        print(answer.text)
        for row in await store.audit_log(turn_id=answer.turn_id):
            print(f"  {row.event:<9} {row.tool:<11} {row.status} {row.code}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(Path(place)))
