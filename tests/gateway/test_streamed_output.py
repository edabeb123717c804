"""Output of a running tool over HTTP: as it comes, and again after a restart from any place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.stage import Stage, scripted
from tests.gateway.test_turns import SETTINGS, kept, served

BUILDER = '''
from toolwire import Context, tool

@tool
async def build(context: Context) -> str:
    """Build it."""
    for number in range(3):
        context.output(f"part {number}\\n")
    context.output("careful\\n", "stderr")
    return "built"
'''


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.module("building", BUILDER)
    yield stage
    stage.close()


@pytest.mark.feature("F142")
def test_a_watcher_reads_the_output_of_a_call_and_finds_it_again_after_a_restart(stage: Stage) -> None:
    settings = SETTINGS.replace("brushwork:paint", "building:build").replace(', "brushes"', "")
    with scripted([("build", {})], "Done.") as model:
        with served(stage, model, settings=settings) as server:
            turn = server.begin("Build")
            told = server.events(turn)
            server.stop()
        with served(stage, model, settings=settings) as server:
            again = server.events(turn)
            first = next(event for event in told if event["event"] == "call_output")
            rest = server.events(turn, first["id"])

    pieces = [event for event in told if event["event"] == "call_output"]
    assert "".join(event["text"] for event in pieces if event["stream"] == "stdout") == "part 0\npart 1\npart 2\n"
    assert [event["text"] for event in pieces if event["stream"] == "stderr"] == ["careful\n"]
    assert again == kept(told)
    assert rest == kept(told)[kept(told).index(first) + 1 :]
