import asyncio

from toolwire import Agent, Code, ToolFailure, tool
from toolwire.testing import ScriptedModel


@tool
def print_page(page: int) -> str:
    """Print a page."""
    raise ToolFailure("The printer is out of paper. Ask the user to load some.", code=Code.UNAVAILABLE)


async def main() -> None:
    agent = Agent(ScriptedModel(), [print_page])

    refused = await agent.call("print_page", {"page": "three"})
    assert refused.error is not None
    assert refused.error.code == "invalid_params"
    assert "page" in refused.text

    failed = await agent.call("print_page", {"page": "3"})  # read as 3: nothing is lost by that
    assert failed.error is not None
    assert (failed.status, failed.error.code, failed.error.retryable) == ("failed", "unavailable", True)


asyncio.run(main())
