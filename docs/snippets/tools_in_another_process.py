import asyncio

from toolwire import Agent, tool
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.execute.service import ServiceExecutor, tools_of
from toolwire.execute.service_host import ServiceHost
from toolwire.testing import ScriptedModel, call


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"Rain in {city}."


async def ask(address: str) -> None:
    tools = await tools_of(address)  # what they are; what they do stays in the worker
    executor = Router(InProcessExecutor(), service=ServiceExecutor())
    agent = Agent(ScriptedModel(call("weather", city="Bergen"), "Take a coat."), list(tools), executor=executor)
    print((await agent.ask("What is the weather in Bergen?")).text)
    await executor.close()


async def main() -> None:
    async with ServiceHost([weather]).listening("weather.sock"):  # in real life a process of its own
        await ask("weather.sock")


asyncio.run(main())
