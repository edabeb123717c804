"""What the embedded model is measured with is nothing that it was taught."""

import json
from pathlib import Path

from benchmarks.local_eval.rows import HERE, rows
from training.families import seed_tools
from training.generate import as_json, generate
from training.making import lines
from training.naming import bare, reserved
from training.spoken import talked
from training.spoken_chains import apps

COUNT = 300


def plain(text: str) -> str:
    return " ".join(text.lower().split()).strip(" .?!")


def test_no_request_of_the_evaluation_was_written_for_training_too() -> None:
    asked = {plain(row.say) for row in rows()}
    taught = {plain(said.text) for tool in talked() for said in tool.asks}
    taught |= {plain(errand.said) for app in apps() for errand in app.errands}
    taught |= {plain(line.partition(": ")[2].split(" => ")[0]) for line in lines("chatter")}
    assert asked.isdisjoint(taught)


def test_the_names_of_the_evaluations_tools_are_reserved() -> None:
    invented = {bare(tool["name"]) for tool in json.loads(Path(HERE / "tools.json").read_text(encoding="utf-8"))}
    assert invented == reserved()


def test_no_tool_in_training_is_called_like_one_of_the_evaluation() -> None:
    offered = {tool["name"] for talk in generate(5, COUNT, "train") for tool in as_json(talk, tools=True)["tools"]}
    assert not {name for name in offered if bare(name) in reserved()} - seed_tools().keys()
