"""DBOS on PostgreSQL: a workflow with one step, in the process that calls it. `… URL` answers rounds of calls."""

import asyncio
import sys

from dbos import DBOS, DBOSConfig

from benchmarks.rounds import serve_rounds


@DBOS.step()
async def work(number: int) -> str:
    return f"done {number}"


@DBOS.workflow()
async def durable(number: int) -> str:
    result: str = await work(number)
    return result


async def call(number: int) -> None:
    handle = await DBOS.start_workflow_async(durable, number)
    assert await handle.get_result() == f"done {number}"


async def main(url: str) -> None:
    config = DBOSConfig(name="fleet-peers", system_database_url=url, log_level="ERROR", enable_otlp=False)
    DBOS(config=config)
    DBOS.launch()
    try:
        await serve_rounds(call)
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
