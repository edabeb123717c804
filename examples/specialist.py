"""A specialist agent that a record wakes: it is defined by one record, asked by another, and answers with a third.

Runs with no key and no server: the model follows a script. In a project, `toolwire run` and `toolwire serve --agents`
do what `begin` and the last lines of `main` do here.
"""

import asyncio

from toolwire import Agent
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import Caller, Role
from toolwire.breadcrumbs.service import RecordService
from toolwire.breadcrumbs.specialists import Specialists, SpecialistWork
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.record.memory import MemoryStore
from toolwire.testing import ScriptedModel

ADMIN = Caller("ann", Role.ADMIN)
MAKER = {"name": "tool-maker", "system_prompt": "You write small tools.", "subscriptions": []}
WISH = {"tool_name": "clock", "description": "Tells the time"}


async def main() -> None:
    store = MemoryStore()
    records = RecordService(store, "default")
    maker = Agent(ScriptedModel("def clock(): ..."), store=store, name="tool-maker")

    async def begin(work: SpecialistWork) -> None:
        await maker.begin(work.question, turn_id=work.turn_id)

    specialists = Specialists(records, store, begin)
    await records.create(NewRecord("agent.def.v1", "Tool maker", context=MAKER), ADMIN)
    tags = ("assigned-to:tool-maker",)
    wish = await records.create(NewRecord("tool.creation.request.v1", "A clock", tags, WISH), ADMIN)

    await specialists.look()  # the record wakes the agent
    for turn in await maker.ready():
        await maker.resume(turn.id)
    await specialists.look()  # its answer becomes a record

    answers = RecordQuery(schema_name="delegation.response.v1", all_tags=(f"request:{wish.id}",))
    [found] = await records.listed(answers, ADMIN)
    print(found.value.context["agent"], "answers:", found.value.context["answer"])
    records.close()
    await store.close_store()


if __name__ == "__main__":
    asyncio.run(main())
