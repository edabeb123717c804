"""Which records a selector means, how it may be written, and that an index finds the same as looking at each."""

from typing import Any

import pytest
from benchmarks import selectors as selectors_benchmark
from hypothesis import given
from hypothesis import strategies as st

from toolwire.breadcrumbs.rules.selector_index import SelectorIndex
from toolwire.breadcrumbs.rules.selectors import LONGEST_CONTAINED, Operator, fits, read_selector
from toolwire.errors import InvalidRecord
from toolwire.protocol.breadcrumbs import Record

ORDER = {
    "status": "failed",
    "total": 120,
    "paid": False,
    "customer": {"id": 7, "name": "Ada"},
    "lines": [{"price": 3.5, "tags": ["new", "blue"]}, {"price": 9}],
    "x.id": {"y": "quoted"},
    "note": None,
}


def record(context: Any = ORDER, schema: str = "order.placed.v1", tags: tuple[str, ...] = ("a", "b")) -> Record:
    return Record("r1", "p", schema, tags=tags, context=context)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"schema_name": "order.placed.v1"}, True),
        ({"schema_name": "order.placed"}, False),
        ({"schema_name": "order.*"}, True),
        ({"schema_name": "orders.*"}, False),
        ({"any_tags": ["z", "b"]}, True),
        ({"any_tags": ["z"]}, False),
        ({"all_tags": ["a", "b"]}, True),
        ({"all_tags": ["a", "z"]}, False),
        ({"schema_name": "order.*", "any_tags": ["a"], "all_tags": ["z"]}, False),
        ({"all": True}, True),
    ],
)
def test_a_selector_means_records_by_schema_and_tags(asked: Any, expected: bool) -> None:
    assert fits(read_selector(asked), record()) is expected


@pytest.mark.parametrize(
    ("path", "op", "value", "expected"),
    [
        ("status", "eq", "failed", True),
        ("status", "ne", "failed", False),
        ("total", "eq", 120.0, True),
        ("total", "eq", "120", False),
        ("paid", "eq", False, True),
        ("paid", "eq", 0, False),
        ("note", "eq", None, True),
        ("customer", "eq", {"name": "Ada", "id": 7}, True),
        ("total", "gt", 119, True),
        ("total", "gt", 120, False),
        ("total", "gte", 120, True),
        ("total", "lt", 121, True),
        ("total", "lte", 119, False),
        ("total", "gt", "1", False),
        ("paid", "gte", 0, False),
        ("status", "lt", "g", True),
        ("customer.id", "in", [1, 7], True),
        ("customer.id", "in", ["7", True], False),
        ("customer.id", "not_in", [1, 7], False),
        ("lines[0].tags", "contains", "blue", True),
        ("lines[0].tags", "contains", "blu", False),
        ("status", "contains", "ail", True),
        ("lines[0].tags", "contains_any", ["red", "new"], True),
        ("lines[0].tags", "contains_all", ["blue", "new"], True),
        ("lines[0].tags", "contains_all", ["blue", "red"], False),
        ("status", "contains_any", ["zz", "fa"], True),
        ("total", "contains", 1, False),
        ("lines[1].price", "eq", 9, True),
        ("lines[-1].price", "eq", 9, True),
        ("lines.0.price", "eq", 3.5, True),
        ("lines[2].price", "exists", True, False),
        ("lines[2].price", "exists", False, True),
        ("$.customer.name", "starts_with", "A", True),
        ("customer.name", "ends_with", "x", False),
        ('["x.id"].y', "eq", "quoted", True),
        ("status", "matches", "^fail", True),
        ("status", "matches", "ok|done", False),
        ("total", "matches", "1", False),
        ("note", "exists", True, True),
        ("missing.deep", "eq", None, False),
        ("missing.deep", "ne", 1, True),
        ("missing", "not_in", [1], True),
        ("status.deeper", "exists", True, False),
    ],
)
def test_a_condition_compares_the_value_at_its_path(path: str, op: str, value: Any, expected: bool) -> None:
    selector = read_selector({"context_match": [{"path": path, "op": op, "value": value}]})

    assert fits(selector, record()) is expected
    assert SelectorIndex([("only", selector)]).match(record()) == (["only"] if expected else [])


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({}, r'write \{"all": true\}'),
        ({"any_tags": None}, r'write \{"all": true\}'),
        ([], "a selector is an object"),
        ({"any_tag": ["a"]}, "did you mean any_tags"),
        ({"schema": "x"}, "did you mean schema_name"),
        ({"any_tags": []}, "1 to 64 tags"),
        ({"any_tags": "a"}, "1 to 64 tags"),
        ({"any_tags": [1]}, "must be text"),
        ({"all_tags": ["x"] * 65}, "1 to 64 tags"),
        ({"schema_name": "*"}, "is any schema"),
        ({"schema_name": "a*b"}, "only at the end"),
        ({"schema_name": 4}, "must be text"),
        ({"schema_name": "Order.v1"}, "a name such as note.v1"),
        ({"schema_name": "order v1.*"}, "a name such as note.v1"),
        ({"all": False}, "stands alone"),
        ({"all": True, "any_tags": ["a"]}, "stands alone"),
        ({"context_match": []}, "1 to 16 conditions"),
        ({"context_match": {"path": "a"}}, "1 to 16 conditions"),
        ({"context_match": ["a"]}, "a condition of context_match is an object"),
        ({"context_match": [{"path": "a", "operator": "eq", "value": 1}]}, "has no field 'operator'"),
        ({"context_match": [{"path": "a", "op": "greater", "value": 1}]}, "there is no operator 'greater'"),
        ({"context_match": [{"path": "a", "op": "contain_any", "value": [1]}]}, "did you mean contains_any"),
        ({"context_match": [{"path": "a", "op": "gt"}]}, "has no value"),
        ({"context_match": [{"path": "a", "op": "gt", "value": True}]}, "a number or a text"),
        ({"context_match": [{"path": "a", "op": "in", "value": "x"}]}, "takes a list"),
        ({"context_match": [{"path": "a", "op": "exists", "value": 1}]}, "true or false"),
        ({"context_match": [{"path": "a", "op": "starts_with", "value": 1}]}, "takes a text"),
        ({"context_match": [{"path": "a", "op": "eq", "value": float("nan")}]}, "not a finite number"),
        ({"context_match": [{"path": "a", "op": "eq", "value": 1 << 64}]}, "too large"),
        ({"context_match": [{"path": "a..b", "op": "eq", "value": 1}]}, "cannot be read at character 2"),
        ({"context_match": [{"path": "a[*].b", "op": "eq", "value": 1}]}, "cannot be read at character 2"),
        ({"context_match": [{"path": "", "op": "eq", "value": 1}]}, "must be text such as"),
        ({"context_match": [{"path": "$", "op": "eq", "value": 1}]}, "1 to 32 steps"),
        ({"context_match": [{"path": "a", "op": "matches", "value": "(?=x)"}]}, "look-around"),
        ({"context_match": [{"path": "a", "op": "matches", "value": "("}]}, "not well-formed"),
        ({"context_match": [{"path": "a", "op": "eq", "value": "x" * 20_000}]}, "at most 16384 bytes"),
    ],
)
def test_a_selector_that_cannot_be_meant_is_refused_with_the_nearest_name(asked: Any, sentence: str) -> None:
    with pytest.raises(InvalidRecord, match=sentence):
        read_selector(asked)


def test_a_value_that_is_nested_without_end_is_refused() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]

    with pytest.raises(InvalidRecord, match="levels deep"):
        read_selector({"context_match": [{"path": "a", "op": "eq", "value": value}]})


NAMES = st.sampled_from(["a", "b", "0", "x.y"])
SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, 2, 1.0, 0.5, "", "a", "ab", "abc", "1"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
CONTEXTS = st.dictionaries(NAMES, VALUES, max_size=4)
PATHS = st.lists(st.sampled_from(["a", "b", "0", '["x.y"]', "[0]", "[-1]", "[1]"]), min_size=1, max_size=3).map(
    lambda steps: "".join(step if step.startswith("[") or not place else f".{step}" for place, step in enumerate(steps))
)
TAGS = st.sampled_from(["t1", "t2", "t3", "t4"])
SCHEMAS = st.sampled_from(["note.v1", "note.v2", "tool.response.v1", "tool"])
OPERANDS: dict[Operator, st.SearchStrategy[Any]] = {
    **dict.fromkeys((Operator.EQ, Operator.NE, Operator.CONTAINS), VALUES),
    **dict.fromkeys((Operator.GT, Operator.GTE, Operator.LT, Operator.LTE), st.sampled_from([0, 1, 0.5, 2, "a", "ab"])),
    **dict.fromkeys(
        (Operator.IN, Operator.NOT_IN, Operator.CONTAINS_ANY, Operator.CONTAINS_ALL),
        st.lists(VALUES, min_size=1, max_size=3),
    ),
    **dict.fromkeys((Operator.STARTS_WITH, Operator.ENDS_WITH), st.sampled_from(["", "a", "ab", "b"])),
    Operator.MATCHES: st.sampled_from(["^a", "b$", "."]),
    Operator.EXISTS: st.booleans(),
}
CONDITIONS = st.sampled_from(list(Operator)).flatmap(
    lambda op: st.fixed_dictionaries({"path": PATHS, "op": st.just(op.value), "value": OPERANDS[op]})
)
SELECTORS: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {},
    optional={
        "schema_name": SCHEMAS | st.sampled_from(["note.*", "t*", "tool.*"]),
        "any_tags": st.lists(TAGS, min_size=1, max_size=3),
        "all_tags": st.lists(TAGS, min_size=1, max_size=2),
        "context_match": st.lists(CONDITIONS, min_size=1, max_size=3),
    },
).map(lambda asked: {**asked} if asked else {"all": True})
RECORDS = st.builds(
    lambda schema, tags, context: Record("r", "p", schema, tags=tuple(tags), context=context),
    SCHEMAS, st.lists(TAGS, max_size=4), CONTEXTS,
)  # fmt: skip


@given(st.lists(SELECTORS, min_size=1, max_size=12), st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_an_index_finds_what_looking_at_each_selector_finds(asked: list[Any], records: list[Record], data: Any) -> None:
    selectors = {str(number): read_selector(one) for number, one in enumerate(asked)}
    index = SelectorIndex(selectors.items())
    gone = data.draw(st.sets(st.sampled_from(list(selectors))))
    for _ in range(2):
        for one in records:
            expected = sorted(name for name, selector in selectors.items() if fits(selector, one))
            assert sorted(index.match(one)) == expected
        for name in gone:
            index.remove(name)
            selectors.pop(name, None)
    for name in list(selectors):
        index.remove(name)
    assert len(index) == 0
    assert index.match(records[0]) == []


@given(SELECTORS)
def test_a_selector_is_the_same_after_it_was_written_down(asked: Any) -> None:
    selector = read_selector(asked)

    again = read_selector(selector.as_json())

    assert (again, again.key) == (selector, selector.key)


BOMBS = ["(a+)+$", "(a|a)*b", "(a|aa)+$", "([ab]{1,20}){1,5}c", "(.*){1,9}x", "(a?){50}a{50}!?c"]
TOO_LARGE = ["(((a{1,99}){1,99}){1,99})c", "([ab]{1,30}){1,9}c", "(a|b)*a(a|b){200}c"]


def test_T240_no_regular_expression_of_a_selector_stalls_the_process() -> None:
    """With backtracking, the first of them would not end while this computer lasts."""
    text = "a" * 3_000 + "!"
    for bomb in BOMBS:
        selector = read_selector({"context_match": [{"path": "text", "op": "matches", "value": bomb}]})
        assert fits(selector, record({"text": text})) is False
    for bomb in TOO_LARGE:
        with pytest.raises(InvalidRecord, match="too large"):
            read_selector({"context_match": [{"path": "text", "op": "matches", "value": bomb}]})


def test_T240_control_an_ordinary_expression_is_searched_for() -> None:
    selector = read_selector({"context_match": [{"path": "text", "op": "matches", "value": r"order-\d{4,8}$"}]})

    assert fits(selector, record({"text": "this is order-12345"}))
    assert not fits(selector, record({"text": "this is order-12"}))


def test_the_benchmark_of_the_index_runs_and_finds_the_same_in_both_ways() -> None:
    assert {kind for kind, *_ in selectors_benchmark.measured(60)} == selectors_benchmark.KINDS.keys()


class CountedNumber(int):
    """A number that counts how often one of its kind is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        CountedNumber.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_T300_a_long_list_is_gone_through_once_however_much_is_asked_for() -> None:
    asked = {"path": "list", "op": "contains_any", "value": [-number for number in range(1, 251)]}
    long = record({"list": [CountedNumber(number) for number in range(1_000)]})
    CountedNumber.compared = 0
    assert not fits(read_selector({"context_match": [asked]}), long)
    assert not SelectorIndex([("a", read_selector({"context_match": [asked]}))]).match(long)
    assert CountedNumber.compared < 5_000


@pytest.mark.parametrize("op", ["contains", "contains_any", "contains_all"])
def test_T300_only_the_beginning_of_a_text_or_list_is_looked_at(op: str) -> None:
    cases: list[tuple[Any, Any]] = [("needle", "x"), (7, [0]), ({"a": 1}, [0])]
    for wanted, before in cases:
        value = wanted if op == "contains" else [wanted]
        selector = read_selector({"context_match": [{"path": "held", "op": op, "value": value}]})
        for count, expected in ((LONGEST_CONTAINED - 6, True), (LONGEST_CONTAINED, False)):
            held = before * count + (wanted if isinstance(wanted, str) else [wanted])
            indexed = SelectorIndex([("a", selector)]).match(record({"held": held}))
            assert (fits(selector, record({"held": held})), bool(indexed)) == (expected, expected), (wanted, count)


def test_T300_control_elements_are_compared_as_json() -> None:
    held = [1.0, True, {"a": [1, None], "b": 2}, [[]]]
    cases: list[tuple[Any, bool]] = [(1, True), ({"b": 2.0, "a": [1.0, None]}, True), ([[]], True), (False, False)]
    for wanted, expected in cases:
        asked: dict[str, Any] = {"path": "held", "op": "contains", "value": wanted}
        assert fits(read_selector({"context_match": [asked]}), record({"held": held})) is expected
    asked = {"path": "held", "op": "contains", "value": True}
    assert not fits(read_selector({"context_match": [asked]}), record({"held": [1]}))
