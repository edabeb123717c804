"""Processes that use a store and may die doing so: `python -m tests.record.children VERB HOME NAME`."""

import asyncio
import resource
import sys
from pathlib import Path

from toolwire.errors import StoreUnavailable
from toolwire.protocol.chat import Reply
from toolwire.record.sqlite import SqliteStore

from .samples import a_call, a_card, a_turn, success

IN_FLIGHT = 16


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def work_until_killed(store: SqliteStore, name: str) -> None:
    """Begin a turn and run calls of it for ever, naming each once its result is durable."""
    turn = a_turn(name)
    await store.begin(turn)
    await store.append_reply(turn, Reply("Let me look."), [], [])

    async def run(worker: int) -> None:
        number = 0
        while True:
            card = a_card(a_call(f"{worker}-{number}"), turn)
            await store.open(card, [])
            await store.close(card, success(card.call), [])
            say(card.call.id)
            number += 1

    await asyncio.gather(*(run(worker) for worker in range(IN_FLIGHT)))


async def race(store: SqliteStore, name: str) -> None:
    """Close the same calls as everyone else, and say who won each."""

    async def one(number: int) -> str:
        card = await store.open(a_card(a_call(f"shared-{number}")), [])
        return (await store.close(card, success(card.call, text=name), [])).text

    for winner in await asyncio.gather(*(one(number) for number in range(200))):
        say(winner)


async def squeeze(store: SqliteStore, name: str) -> None:
    """Run out of room in the middle of work, then get it back."""
    await store.open(a_card(a_call("before")), [])
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, unlimited[1]))
    cards = [a_card(a_call(f"{name}-{number}", text="x" * 20_000)) for number in range(50)]
    outcomes = await asyncio.gather(*(store.open(card, []) for card in cards), return_exceptions=True)
    refused = [error for error in outcomes if isinstance(error, StoreUnavailable)]
    kept = [card for card in cards if card in outcomes]
    say(f"{len(refused) + len(kept)} answered, refused: {bool(refused)}")
    say(f"readable: {len(await store.calls(limit=1000)) == 1 + len(kept)}")
    resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    say(f"recovered: {len([await store.open(card, []) for card in cards])}")
    say(str(refused[0]))


async def main(verb: str, home: str, name: str) -> None:
    verbs = {"work": work_until_killed, "race": race, "squeeze": squeeze}
    async with await SqliteStore.at(Path(home)) as store:
        await verbs[verb](store, name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
