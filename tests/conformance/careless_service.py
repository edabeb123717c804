"""A service that answers commands and breaks the rules of the protocol: the kit must find that."""

import asyncio
import itertools
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg

CARDS, TOKEN = os.environ["CARDS_URL"], os.environ["CARDS_TOKEN"]
SUBJECT = os.environ["TOOL_SUBJECT"]
PROJECT, CHANNEL = SUBJECT.split(".")[2:4]
NUMBERS = itertools.count(1)


def ask(path: str, method: str = "GET", body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"{CARDS}/v1/projects/{PROJECT}/cards/{path}"
    request = urllib.request.Request(url, data, {"authorization": f"Bearer {TOKEN}"}, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def run(command: dict[str, Any]) -> dict[str, Any]:
    """Runs whatever it gets, as often as it gets it, under a new card each time."""
    arguments = command.get("Arguments") or ask(command["tool_call_card_id"])["content"]["arguments"]
    with Path(os.environ["NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(f"{arguments['text']}\n")
    metadata = {"agent_turn_id": command["agent_turn_id"], "tool_call_id": command["tool_call_id"]}
    card = {"card_id": f"card_{next(NUMBERS)}", "project_id": PROJECT, "type": "tool.result", "metadata": metadata}
    card["content"] = {"status": "success", "result": "ok"}
    ask(str(card["card_id"]), "PUT", card)
    return card


async def main() -> None:
    client = await nats.connect(os.environ["NATS_URL"])

    async def handle(message: Msg) -> None:
        try:
            command = json.loads(message.data)
            card = await asyncio.to_thread(run, command)
        except Exception:  # what it cannot run, it forgets
            return
        told = ("agent_id", "agent_turn_id", "tool_call_id", "after_execution", "turn_epoch")
        callback = {name: command.get(name) for name in told}
        callback |= {"tool_result_card_id": card["card_id"], "status": "success", "after_execution": "terminate"}
        report = f"cg.v1r4.{PROJECT}.{CHANNEL}.cmd.sys.execution.report"
        await client.publish(report, json.dumps(callback).encode())

    await client.subscribe(SUBJECT, cb=handle)
    await asyncio.Event().wait()


asyncio.run(main())
