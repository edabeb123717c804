"""What a person at the command line reads: tools and their groups, results of commands, and what to type instead."""

import shlex

import pytest

from tests.cli.stage import Stage, Terminal
from toolwire.cli.entry.exits import Exit
from toolwire.cli.views.audit_line import row_line
from toolwire.protocol.records import AuditRow

SHOP = """
from pydantic import BaseModel, Field
from toolwire import tool

class Item(BaseModel):
    sku: str = Field(description="Its number.")
    amount: int = 1

class Order(BaseModel):
    customer: str
    items: list[Item] = []
    parent: "Order | None" = None

@tool
def place_order(order: Order) -> str:
    "Place an order."
    return "ok"
"""


def test_the_list_of_tools_names_the_groups_and_how_to_get_them(stage: Stage) -> None:
    ran = stage.run("tools", "list")
    assert " more built-in tools are in groups. Add some with --tools (e.g. --tools coding,shell" in ran.out
    groups = {line.split()[0]: line for line in ran.out.splitlines() if line}
    assert "bash" in groups["shell"]
    assert "apply_patch" in groups["coding"]
    assert "more built-in" not in stage.run("tools", "list", "--tools", "all").out
    assert "more built-in" not in stage.run("tools", "list", "--json").out


@pytest.mark.parametrize("columns", [44, 80, 120])
def test_no_name_is_broken_however_narrow_the_terminal_is(stage: Stage, columns: int) -> None:
    with Terminal(stage, "tools", "list", columns=columns, NO_COLOR="1") as terminal:
        assert terminal.end() == Exit.DONE
    lines = terminal.seen.splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in ("calculator", "random", "teamwork"))
    assert all(len(line) <= columns for line in lines)


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_a_long_id_takes_no_column_away_however_narrow_the_terminal_is(stage: Stage, columns: int) -> None:
    stage.run("records", "create", "note", "{}", "--title", "Roses")
    with Terminal(stage, "records", "list", columns=columns, NO_COLOR="1") as terminal:
        assert terminal.end() == Exit.DONE
    assert all(word in terminal.seen for word in ("note", "Roses", "version"))
    assert all(len(line) <= columns for line in terminal.seen.splitlines())


def test_no_word_of_a_table_is_broken_in_a_narrow_terminal(stage: Stage) -> None:
    stage.run("call", "echo", "message=hi")
    with Terminal(stage, "metrics", columns=40, NO_COLOR="1") as terminal:
        assert terminal.end() == Exit.DONE
    lines = [line.split() for line in terminal.seen.splitlines()]
    assert ["echo"] in lines
    assert ["canceled", "0"] in lines


def test_no_line_of_the_status_is_broken_where_there_is_no_terminal(stage: Stage) -> None:
    told = " ".join(["a long message that does not fit a line"] * 3)
    stage.settings("[loop]\niterations = 3\n")
    stage.run("call", "echo", f"message={told}")
    lines = stage.run("status").out.splitlines()

    [setting] = [line for line in lines if line.startswith("set ")]
    assert setting.endswith(f"{stage.folder}/toolwire.toml, line 2")
    [at] = [number for number, line in enumerate(lines) if line.endswith("call echo")]
    assert lines[at + 1].split()[:2] == ["delivered", '{"echo":"a']
    assert lines[at + 2] == ""


def test_the_status_shows_what_a_command_gave_and_not_what_models_are_told_of_it(stage: Stage) -> None:
    (stage.folder / "notes.txt").write_text("water the roses\n", encoding="utf-8")
    stage.run("call", "grep", "pattern=roses", "--tools", "read_only")
    assert "TE_BEGIN_META" in stage.run("status", "--json").out

    said = stage.run("status").out
    assert ("water the roses" in said, "TE_BEGIN_META" in said) == (True, False)


def test_a_group_that_is_not_there_is_answered_with_those_that_are(stage: Stage) -> None:
    ran = stage.run("tools", "list", "--tools", "nonsense")
    assert "there is no 'nonsense'; there are read_only, coding" in ran.err
    assert "did you mean coding?" in stage.run("tools", "list", "--tools", "codng").err


def test_a_tool_is_shown_with_the_fields_of_its_arguments(stage: Stage) -> None:
    stage.settings('[tools]\nmodules = ["shop:place_order"]\n')
    stage.module("shop", SHOP)
    rows = {line.split()[0]: line for line in stage.run("tools", "show", "place_order").out.splitlines() if line}
    assert "object" in rows["order"]
    assert "string" in rows["order.customer"]
    assert "list of object" in rows["order.items"]
    assert "Its number." in rows["order.items[].sku"]
    assert "no (1)" in rows["order.items[].amount"]
    assert "order.parent.customer" not in rows


def test_what_a_command_writes_is_shown_as_it_is(stage: Stage) -> None:
    words = ["call", "bash", "command=echo out; echo err >&2; exit 3", "--tools", "shell", "--tier", "run"]
    ran = stage.run(*words, "--allow", "shell", "--yes")
    assert ran.out == "out\n"
    assert ran.err.startswith("err\nexit code 3 · success in ")
    (stage.folder / "a.txt").write_text("needle\n")
    found = stage.run("call", "grep", "pattern=needle", "--tools", "read_only", "--allow", "file_read")
    assert "needle" in found.out
    assert "TE_BEGIN_META" not in found.out


@pytest.mark.parametrize(
    "given", [(), ("--tools", "coding"), ("--tools", "coding", "--tier", "run"), ("--tier", "crawl")]
)
def test_all_that_is_missing_is_told_at_once_and_what_is_told_works(stage: Stage, given: tuple[str, ...]) -> None:
    ran = stage.run("call", "write", "path=a b.txt", "content=hi there", *given)
    assert ran.code in (Exit.NOT_FOUND, Exit.FAILED)
    assert "tell the user" not in ran.err
    [line] = [line for line in ran.err.splitlines() if line.startswith("To call it, type: toolwire ")]
    typed = shlex.split(line.removeprefix("To call it, type: toolwire "))
    assert stage.run(*typed, "--yes").code == Exit.DONE
    assert (stage.folder / "a b.txt").read_text() == "hi there"


def test_preflight_tells_the_same(stage: Stage) -> None:
    ran = stage.run("preflight", "bash", "command=ls")
    assert "To call it, type: toolwire call bash command=ls --tools shell --tier run --allow shell" in ran.err


def test_a_misspelled_tool_of_a_group_is_found(stage: Stage) -> None:
    assert "Did you mean bash?" in stage.run("call", "bahs", "command=ls").err


def test_the_log_says_once_how_a_call_ended() -> None:
    row = AuditRow(0.0, "finished", tool="bash", status="canceled", code="canceled")
    assert row_line(row).plain.count("canceled") == 1
