"""langchain's create_agent."""

from langchain.agents import create_agent
from langchain_core.tools import tool

from benchmarks.peers.langchain_model import InstantModel
from benchmarks.task import QUESTION, SYSTEM, Run, Shape, functions, script


def prepare(shape: Shape) -> Run:
    tools = [tool(function) for function in functions(shape.tools)]
    graph = create_agent(InstantModel(steps=script(shape)), tools, system_prompt=SYSTEM)
    config = {"recursion_limit": 4 * shape.turns + 20}

    async def run() -> str:
        state = await graph.ainvoke({"messages": [("user", QUESTION)]}, config)
        return str(state["messages"][-1].content)

    return run
