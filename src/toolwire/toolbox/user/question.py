"""The tool that asks the user."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool

LONGEST_WAIT_S = 3600.0
USUAL_WAIT_S = 600.0

Ask = Callable[[str, Sequence[str]], Awaitable[str]]
"""Shows a question and its choices, if any, to the user, and gives back what they say."""


class QuestionOutput(TypedDict):
    answer: Annotated[str, Field(description="What the user said.")]
    chosen: Annotated[int | None, Field(description="The place of the answer among the choices, from 0; null if none.")]


def question_tool(ask: Ask | None = None) -> Tool:
    """The tool that asks the user through `ask`; without one it says that no user can be asked."""

    @tool(
        name="question",
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="interaction",
        writes=("user",),  # one question at a time
        timeout_s=USUAL_WAIT_S,
        max_timeout_s=LONGEST_WAIT_S,
        examples=({"prompt": "Which colour?"}, {"prompt": "Go on?", "choices": ["yes", "no"]}),
    )
    async def question(
        prompt: Annotated[str, Field(min_length=1, max_length=4000)],
        choices: Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(max_length=20)]
        | None = None,
    ) -> QuestionOutput:
        """Ask the user a question and wait for the answer. Use it only when you cannot go on without it.

        Args:
            prompt: The question, in words that the user understands.
            choices: Answers to choose from; the user may still say something else.
        """
        if ask is None:
            raise ToolFailure(
                "no user can be asked here; decide yourself, or end with the question as your answer",
                code=Code.UNAVAILABLE,
            )
        answer = (await ask(prompt, choices or ())).strip()
        return {"answer": answer, "chosen": _chosen(answer, choices or ())}

    return question


def _chosen(answer: str, choices: Sequence[str]) -> int | None:
    """Which choice was meant: by its words, whatever the case, or by its number from 1."""
    words = [choice.casefold() for choice in choices]
    if answer.casefold() in words:
        return words.index(answer.casefold())
    number = int(answer) - 1 if answer.isascii() and answer.isdecimal() and len(answer) < 4 else -1
    return number if 0 <= number < len(choices) else None
