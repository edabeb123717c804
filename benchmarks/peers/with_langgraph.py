"""langgraph's create_react_agent."""

import warnings

from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent

from benchmarks.peers.langchain_model import InstantModel
from benchmarks.task import QUESTION, SYSTEM, Run, Shape, functions, script


def prepare(shape: Shape) -> Run:
    tools = [tool(function) for function in functions(shape.tools)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated in favour of create_agent, and still the one people run
        graph = create_react_agent(InstantModel(steps=script(shape)), tools, prompt=SYSTEM)
    config = {"recursion_limit": 2 * shape.turns + 10}

    async def run() -> str:
        state = await graph.ainvoke({"messages": [("user", QUESTION)]}, config)
        return str(state["messages"][-1].content)

    return run
