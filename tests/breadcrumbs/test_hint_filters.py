"""Which parts of a context include and exclude lists name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.breadcrumbs.rules.hints.filters import keep_only, leave_out
from toolwire.breadcrumbs.rules.hints.paths import ANY, read_path
from toolwire.errors import InvalidRecord

CONTEXT = {
    "tools": [
        {"name": "a", "examples": [1], "schema": {"in": 1, "out": 2}},
        {"name": "b", "examples": [], "schema": {"in": 3}},
        "odd",
    ],
    "workspace": "x",
    "by.dots": {"é": 1},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)
STEPS = st.lists(st.sampled_from(["a", "b", 0, 1, ANY]), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("workspace", ("workspace",)),
        ("a.b", ("a", "b")),
        ("tools[*].inputSchema", ("tools", ANY, "inputSchema")),
        ("tools.*.inputSchema", ("tools", ANY, "inputSchema")),
        ("rows[0][12]", ("rows", 0, 12)),
        ("$.a.b", ("a", "b")),
        ("[*].a", (ANY, "a")),
        ("""a["b.c"]['d"e'].f""", ("a", "b.c", 'd"e', "f")),
        (r'a["b\"c"]', ("a", 'b"c')),
        ("*", (ANY,)),
        ("deux mots.été", ("deux mots", "été")),
    ],
)
def test_a_path_has_steps(text: str, steps: object) -> None:
    assert read_path(text) == steps


@pytest.mark.parametrize(
    "text", ["", " ", "$", "a..b", "a.", "a[", "a[b]", "a[*]b", "a**", 7, None, "a" * 401, ".".join("a" * 40), "a[-1]"]
)
def test_a_path_that_cannot_be_meant_is_refused(text: object) -> None:
    with pytest.raises(InvalidRecord, match="path"):
        read_path(text)


@pytest.mark.feature("F207")
@pytest.mark.parametrize(
    ("paths", "left"),
    [
        (["tools[*].examples", "tools[*].schema.in", "workspace"], {"a": {"out": 2}, "b": {}}),
        (["tools.*.examples", "*.*.schema.in", "workspace"], {"a": {"out": 2}, "b": {}}),
    ],
)
def test_exclude_reaches_into_every_item_of_an_array(paths: list[str], left: Any) -> None:
    shown = leave_out(CONTEXT, [read_path(path) for path in paths])
    assert shown["tools"] == [{"name": name, "schema": left[name]} for name in "ab"] + ["odd"]
    assert shown["by.dots"] == CONTEXT["by.dots"]
    assert "workspace" not in shown


def test_include_keeps_what_is_named_and_what_leads_to_it() -> None:
    paths = [read_path(path) for path in ("tools[*].name", "tools[1].schema", '["by.dots"]', "missing.x")]
    assert keep_only(CONTEXT, paths) == {
        "tools": [{"name": "a"}, {"name": "b", "schema": {"in": 3}}],
        "by.dots": {"é": 1},
    }
    assert keep_only(CONTEXT, [read_path("missing")]) == {}


@given(JSON, st.lists(STEPS, max_size=4))
def test_what_is_kept_and_what_is_left_are_the_whole(context: Any, paths: list[Any]) -> None:
    """Every value stands in one of both, as often as in the context."""
    kept, left = keep_only(context, paths), leave_out(context, paths)
    if isinstance(context, (dict, list)):
        assert sorted(map(repr, [*leaves(kept), *leaves(left)])) == sorted(map(repr, leaves(context)))


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, list) else [value]


def test_many_wildcards_over_a_large_context_are_refused_instead_of_taking_minutes() -> None:
    context: Any = 1
    for _ in range(6):
        context = {str(n): context for n in range(10)}
    paths = [(*("0" if bits >> n & 1 else ANY for n in range(6)), "x") for bits in range(64)]
    with pytest.raises(InvalidRecord, match="too costly"):
        leave_out(context, paths)
