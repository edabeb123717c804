"""A tool that did a part of what it was asked for."""

from tests.cli.stage import Stage, scripted

READING = '''
from toolwire import Text, tool
from toolwire.protocol.calls import ToolOutput


@tool
def read_all() -> ToolOutput:
    """Read all files."""
    return ToolOutput((Text("a and b"),), missing="c.txt could not be read")
'''


def test_a_partial_result_is_shown_and_is_no_success(stage: Stage) -> None:
    stage.module("reading", READING)
    stage.settings('[tools]\nmodules = ["reading:read_all"]\n')
    shown = stage.run("call", "read_all")
    told = stage.run("call", "read_all", "--json")
    metrics = stage.run("metrics", "--json")

    assert (shown.code, told.code) == (1, 1)
    assert shown.out == "a and b\nc.txt could not be read\n"
    assert "partial in" in shown.err
    assert (told.json["status"], told.json["ok"], told.json["error"]) == ("partial", False, None)
    [row] = [row for row in metrics.json["tools"] if row["tool"] == "read_all"]
    assert (row["calls"], row["errors"]) == (2, 0)


def test_a_model_reads_what_was_done_and_what_is_missing(stage: Stage) -> None:
    stage.module("reading", READING)
    stage.settings('[tools]\nmodules = ["reading:read_all"]\n')
    with scripted([("read_all", {})], "Done.") as model:
        asked = stage.run("ask", "Read", *model.flags)
    [answer] = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]

    assert asked.code == 0
    assert "a and b" in answer
    assert "c.txt could not be read" in answer
    assert "Error" not in answer
