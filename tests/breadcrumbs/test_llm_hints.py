"""How hints show a record to a model: what the seed's own hint renders, every transform, and hints that are hostile."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jq
import pytest
import wordllama
from tokenizers import Tokenizer

from toolwire.breadcrumbs import hint_process
from toolwire.breadcrumbs.hint_process import HintProcess
from toolwire.breadcrumbs.rules.hints.reading import read_hints
from toolwire.errors import InvalidRecord

DATA = Path(__file__).parent / "data"
SEED_HINTS = json.loads((DATA / "tool-catalog-v1.json").read_text(encoding="utf-8"))["llm_hints"]
PRINTED = (DATA / "catalogue.txt").read_text(encoding="utf-8")
KEYS = {"template": "template", "extract": "value", "literal": "literal", "format": "format", "jq": "query"}


@pytest.fixture(scope="module")
def process() -> Iterator[HintProcess]:
    process = HintProcess()
    yield process
    process.close()


def one(kind: str, rule: Any) -> dict[str, Any]:
    return {"transform": {"x": {"type": kind, KEYS[kind]: rule}}}


def catalogue() -> dict[str, Any]:
    """A tool.catalog.v1 context with the tools that the seed prints, and all that its hint leaves out."""
    tools = [
        {
            "name": name,
            "description": purpose,
            "category": "tools",
            "version": "1.0.0",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "properties": {field: {} for field in fields.split(", ")}},
            "examples": [{"input": {}}],
            "capabilities": {"async": True},
            "status": "active",
            "lastSeen": "2025-11-12T00:00:00Z",
        }
        for name, purpose, fields in re.findall(r"^• (.+?): (.+) → (.+)$", PRINTED, re.MULTILINE)
    ]
    return {"workspace": "w", "tools": tools, "totalTools": 15, "activeTools": 15, "lastUpdated": "2025-11-12"}


@pytest.mark.feature("F206", "F208")
async def test_the_catalogue_hint_of_the_seed_renders_what_the_seed_prints(process: HintProcess) -> None:
    """But for the last sentence, which the template words a little differently from the printed example."""
    view = await process.view(catalogue(), SEED_HINTS)
    assert view.note == ""
    assert view.context == {"formatted": view.context["formatted"]}
    *lines, last = PRINTED.splitlines()
    assert last == "ALL details for input schemas, examples, and error handling are defined in the standard."
    last = "ALL details for inputs, outputs, examples, and error handling are in the standard."
    assert view.context["formatted"] == "\n".join([*lines, last])


@pytest.mark.feature("F209")
async def test_the_catalogue_hint_meets_the_token_targets_of_the_seed(process: HintProcess) -> None:
    """At most 900 tokens for 15 tools. What it is compared with there, 8,000 tokens, came with no measurement; here it
    is the raw context, in which every tool has but the smallest schemas."""
    shown = (await process.view(catalogue(), SEED_HINTS)).context["formatted"]
    assert tokens(shown) <= 900
    assert tokens(shown) <= 0.25 * tokens(json.dumps(catalogue()))


def tokens(text: str) -> int:
    """By a real tokenizer, the one of Llama 2."""
    table = Path(wordllama.__file__).parent / "tokenizers" / "l2_supercat_tokenizer_config.json"
    return len(Tokenizer.from_file(str(table)).encode(text, add_special_tokens=False).ids)


CONTEXT = {"a": {"b": [1, 2.5, "x"]}, "s": "text & <b>", "n": None, "yes": True, "rows": [{"k": 1}, {"k": 2}]}


@pytest.mark.parametrize(
    ("kind", "rule", "value"),
    [
        ("template", "{{s}} {{a.b.[0]}} {{#if n}}no{{else}}empty{{/if}}", "text & <b> 1 empty"),
        ("template", "{{context.s}}", "text & <b>"),
        ("template", "{{#each rows}}{{@index}}={{k}}{{#unless @last}};{{/unless}}{{/each}}", "0=1;1=2"),
        ("template", "{{#with a}}{{#each b}}{{this}}{{../../yes}},{{/each}}{{/with}}", "1true,2.5true,xtrue,"),
        ("template", "{{missing.deeper}}", ""),
        ("extract", "$.rows[*].k", [1, 2]),
        ("extract", "$.rows[?@.k > 1].k", 2),
        ("extract", "$.missing", None),
        ("literal", {"any": ["json", None]}, {"any": ["json", None]}),
        ("format", "{s}: {a.b[0]} {missing}{n} {{{yes}}} {a.b}", 'text & <b>: 1  {true} [1,2.5,"x"]'),
        ("jq", ".rows | map(.k) | add", 3),
        ("jq", ".rows[].k", [1, 2]),
        ("jq", "empty", None),
        ("jq", ".import, .include?", [None, None]),
    ],
)  # fmt: skip
async def test_every_transform(process: HintProcess, kind: str, rule: Any, value: Any) -> None:
    view = await process.view(CONTEXT, one(kind, rule))
    assert (view.context, view.note) == ({"x": value}, "")


async def test_merge_lays_the_fields_over_what_the_filters_leave_and_replace_shows_them_alone(
    process: HintProcess,
) -> None:
    hints = {"include": ["s", "yes"], "exclude": ["yes"], "transform": {"s2": {"type": "format", "format": "{s}{yes}"}}}
    assert (await process.view(CONTEXT, hints)).context == {"s2": "text & <b>"}
    assert (await process.view(CONTEXT, hints | {"mode": "replace"})).context == {"s2": "text & <b>"}
    merged = (await process.view(CONTEXT, hints | {"mode": "merge"})).context
    assert merged == {"s": "text & <b>", "s2": "text & <b>"}
    assert (await process.view(CONTEXT, {"include": ["s"]})).context == {"s": "text & <b>"}
    assert (await process.view(CONTEXT, None)).context == CONTEXT


@pytest.mark.parametrize(
    ("hints", "match"),
    [
        ([], "object"),
        ({"exclud": []}, "no 'exclud'"),
        ({"include": "a"}, "list of at most"),
        ({"exclude": ["a"] * 101}, "list of at most"),
        ({"mode": "append"}, "replace or merge"),
        ({"mode": ["replace"]}, "replace or merge"),
        ({"transform": {"x": {"type": "eval"}}}, "one of template, extract, literal, format, jq"),
        ({"transform": {"x": {"type": "jq", "value": "."}}}, "keys type and query"),
        ({"transform": {"x": {"type": "template", "template": 7}}}, "is text of at most"),
        ({"transform": {"x": {"type": "template", "template": "x" * 20_000}}}, "is text of at most"),
        ({"transform": {"": {"type": "literal", "literal": 7}}}, "name of a transform"),
        ({"transform": {str(n): {"type": "literal", "literal": n} for n in range(51)}}, "at most 50"),
    ],
)
async def test_hints_that_cannot_be_meant_are_refused_and_never_hide_a_record(
    process: HintProcess, hints: Any, match: str
) -> None:
    with pytest.raises(InvalidRecord, match=match):
        read_hints(hints)
    view = await process.view(CONTEXT, hints)
    assert view.context == CONTEXT
    assert re.search(match, view.note)


DEEP: dict[str, Any] = {"list": list(range(1000)), "text": "a" * 3000}
_place = DEEP
for _ in range(300):
    _place["deeper"] = _place = {}

SLOW = {
    "a jq program that never ends": one("jq", "last(range(1e15))"),
    "a template over a list in a list": one(
        "template", "{{#each list}}{{#each ../list}}{{#each ../../list}}{{../../../text}}{{/each}}{{/each}}{{/each}}"
    ),
    "a pattern that backtracks": one("extract", '$[?search(@, "(a+)+$b")]'),
}
LARGE = {
    "an array that allocates": one("jq", "[] | .[200000000] = 1 | length"),
    "a text that is doubled": one("jq", 'reduce range(99) as $n ("a"; . + .)'),
}
ENDLESS = {"a jq program that calls itself": one("jq", "def grow: 1 + grow; grow")}
"""How fast the machine gives memory decides which limit such a program reaches first."""
WRONG = {
    "more results than a view has": one("jq", "range(1e9)"),
    "a template that makes too much": one("template", "{{#each list}}{{../text}}{{/each}}"),
    "placeholders that make too much": one("format", "{text}" * 1000),
    "a template that includes itself": one("template", '{{#*inline "p"}}{{> p}}{{/inline}}{{> p}}'),
    "descent into a deep context": one("extract", "$..deeper..deeper..deeper"),
    "an unknown helper": one("template", "{{exec 'id'}}"),
    "an unclosed block": one("template", "{{#each list}}"),
    "a broken program": one("jq", ".["),
    "a broken path": one("extract", "$.["),
    "an error of the program itself": one("jq", 'error("no")'),
    "the next input": one("jq", "input"),
    "a number that JSON libraries refuse": one("jq", "1e23 | floor"),
}


@pytest.mark.parametrize("hints", [*SLOW.values(), *LARGE.values(), *WRONG.values()], ids=[*SLOW, *LARGE, *WRONG])
async def test_T218_hints_that_explode_are_stopped_and_the_record_is_shown(process: HintProcess, hints: Any) -> None:
    view = await process.view(DEEP, hints)
    assert view.context == DEEP
    assert view.note.startswith("llm_hints were not applied: ")
    assert ("take too long" in view.note) == (hints in SLOW.values())
    assert ("too much memory" in view.note) == (hints in LARGE.values())
    assert (await process.view({"s": "next"}, one("jq", ".s"))).context == {"x": "next"}


@pytest.mark.parametrize("hints", ENDLESS.values(), ids=ENDLESS)
async def test_T218_hints_that_reach_either_limit_are_stopped(process: HintProcess, hints: Any) -> None:
    view = await process.view(DEEP, hints)
    assert view.context == DEEP
    assert view.note in [
        f"llm_hints were not applied: they {why}." for why in ("take too long", "need too much memory")
    ]
    assert (await process.view({"s": "next"}, one("jq", ".s"))).context == {"x": "next"}


async def test_T218_control_the_same_kinds_of_hints_work_within_their_limits(process: HintProcess) -> None:
    assert (await process.view(DEEP, one("jq", "last(range(1e3))"))).context == {"x": 999}
    nested = one("template", "{{#each list}}{{#if @last}}{{#each ../list}}.{{/each}}{{/if}}{{/each}}")
    assert (await process.view(DEEP, nested)).context == {"x": "." * 1000}


async def test_hints_that_took_too_long_are_not_tried_again(process: HintProcess) -> None:
    """A list with one such record would otherwise take its limit each time."""
    hints = one("jq", "last(range(2e15))")
    first = await process.view(CONTEXT, hints)
    worker = process._worker._process  # the process that it was tried in has ended
    assert (await process.view(CONTEXT, hints)) == first
    assert worker is process._worker._process is None


async def test_T301_views_are_made_once_so_that_slow_ones_do_not_hold_up_every_search(process: HintProcess) -> None:
    """Each takes a part of a second at most, and a search may find fifty of them each time."""
    hints = one("jq", "[last(range(1e4)), .]")
    first = [await process.view({"n": number}, hints) for number in range(3)]
    first[0].context["x"].clear()  # what a caller does with a view stays with that caller
    process.close()
    again = [await process.view({"n": number}, hints) for number in range(3)]
    assert [view.context for view in again] == [{"x": [9_999, {"n": number}]} for number in range(3)]
    assert process._worker._process is None, "nothing was evaluated again"


async def test_T301_control_another_context_or_other_hints_make_another_view(process: HintProcess) -> None:
    for number in range(2):
        assert (await process.view({"n": number}, one("jq", ".n"))).context == {"x": number}
    assert (await process.view({"n": 0}, one("jq", ".n + 1"))).context == {"x": 1}


async def test_T301_views_that_are_remembered_have_a_limit(
    process: HintProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hint_process, "MOST_VIEW_BYTES", 100)
    for number in range(20):
        assert (await process.view({"n": number}, one("jq", ".n"))).context == {"x": number}
    assert 0 < sum(len(view) for _, view in process._made.values()) == process._made_bytes <= 100


async def test_T301_control_a_program_that_asks_for_the_time_is_told_it_after_a_while() -> None:
    passed = [0.0]
    timed = hint_process.HintProcess(lambda: passed[0])
    first = await timed.view({}, one("jq", "now"))
    passed[0] = hint_process.FRESH_S - 1
    assert await timed.view({}, one("jq", "now")) == first
    passed[0] = hint_process.FRESH_S
    assert await timed.view({}, one("jq", "now")) != first
    timed.close()


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("jq", "$ENV.SECRET // env.SECRET"),
        ("jq", "[try (input_filename, $__prog_args) catch null] | .[0]"),
        ("template", "{{s.__class__.__mro__}}{{constructor.constructor}}{{lookup this '__proto__'}}{{log s}}"),
        ("template", "{{rows.__init__.__globals__}}{{@root.__class__}}{{#with s}}{{__class__}}{{upper}}{{/with}}"),
        ("format", "{s.__class__}{rows.__len__}"),
        ("extract", "$.s.__class__"),
    ],
)
async def test_T219_hints_reach_nothing_but_the_context(
    process: HintProcess, kind: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    process.close()  # so that a new process could inherit it
    view = await process.view(CONTEXT, one(kind, rule))
    assert (view.context, view.note) in (({"x": None}, ""), ({"x": ""}, "")) or "not defined" in view.note


@pytest.mark.parametrize(
    "program", ['import "secret" as $x {search: "FOLDER"}; $x', 'include "secret" {search: "FOLDER"}; .',
                'import # x\n "secret" as $x {search: "FOLDER"}; $x', '"secret" | {name: .} | modulemeta']
)  # fmt: skip
async def test_T219_a_program_reads_no_file(process: HintProcess, program: str, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text('"s3cret"')
    (tmp_path / "secret.jq").write_text('"s3cret"')
    view = await process.view(CONTEXT, one("jq", program.replace("FOLDER", str(tmp_path))))
    assert view.context == CONTEXT
    assert view.note
    assert "s3cret" not in view.note


@pytest.mark.parametrize(
    "program", ['import@json"NAME" as $x {search: "FOLDER"}; $x', 'include @text "NAME" {search: "FOLDER"}; .',
                'import # x \\\ny\n "NAME" as $x {search: "FOLDER"}; $x', 'import "NAME" as $x {search: "FOLDER"}; $x']
)  # fmt: skip
async def test_T219_a_program_does_not_learn_which_files_there_are(
    process: HintProcess, program: str, tmp_path: Path
) -> None:
    (tmp_path / "there.json").write_text("1")
    (tmp_path / "there.jq").write_text("1")
    asked = program.replace("FOLDER", str(tmp_path))
    notes = [(await process.view(CONTEXT, one("jq", asked.replace("NAME", name)))).note for name in ("there", "gone")]
    assert notes[0] == notes[1] != ""


async def test_T219_control_without_its_process_a_program_reads_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    assert jq.compile("$ENV.SECRET").input_value(None).first() == "s3cret"
