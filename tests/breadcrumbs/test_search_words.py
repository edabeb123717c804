"""The words by which records are found: of any script, bounded, and never a filter in disguise."""

import pytest

from toolwire.breadcrumbs.rules.words import (
    LONGEST_WORD,
    MOST_QUERY_WORDS,
    MOST_WORDS,
    match_of,
    matches,
    query_words,
    record_text,
    record_words,
)
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Sensitivity, Visibility

NOTE = Record("1", "p", "note.v1", "Deploy failed", ("ops",), {"message": "push", "codes": [502, {"deep": "x"}]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Straße, naïve; ЁЛКА", ["strasse", "naive", "елка"]),
        ("get_user-name v1.2", ["get", "user", "name", "v1", "2"]),
        ("東京都", ["東京", "京都"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("한국어", ["한국어"]),
        ("🔥🔥 fire", ["🔥", "fire"]),
        ('"a" OR NEAR(b*) ^c -d | {e}:', ["a", "or", "near", "b", "c", "d", "e"]),
        ("\ud800\x00\u202e…", []),
        ("", []),
    ],
)
def test_a_query_is_read_as_words_whatever_is_written_in_it(text: str, words: list[str]) -> None:
    assert list(query_words(text)) == words


@pytest.mark.parametrize("asked", ["deploy", "PUSH", "502", "deep x", "ops message", "Deploy Failed"])
def test_a_record_has_the_words_of_its_title_tags_keys_and_values(asked: str) -> None:
    assert set(query_words(asked)) <= set(record_words(NOTE).split())


@pytest.mark.parametrize("asked", ["getUserName", "user", "東", "京都", "天気"])
def test_parts_of_a_word_are_found_where_people_see_parts(asked: str) -> None:
    record = Record("1", "p", "s", "getUserName 東京都の天気")
    assert set(query_words(asked)) <= set(record_words(record).split())


def test_words_are_bounded_in_number_and_length() -> None:
    long = Record("1", "p", "s", "x" * 100_000, (), {"text": " ".join(f"w{i}" for i in range(30_000))})
    words = record_words(long).split()
    assert len(words) < MOST_WORDS + 20
    assert max(map(len, words)) <= LONGEST_WORD
    assert len(query_words(" ".join(f"w{i}" for i in range(100_000)))) == MOST_QUERY_WORDS
    assert query_words("x" * 1_000_000) == ("x" * LONGEST_WORD,)


def test_a_tree_of_any_depth_is_read() -> None:
    tree: dict[str, object] = {"last": "word"}
    for _ in range(5_000):
        tree = {"a": tree}
    assert {"a", "last", "word"} <= set(record_words(Record("1", "p", "s", context=tree)).split())


@pytest.mark.parametrize("sensitivity", [Sensitivity.PII, Sensitivity.SECRET])
def test_personal_and_secret_content_has_no_words(sensitivity: Sensitivity) -> None:
    record = Record("1", "p", "s", "Ann Smith", ("ann",), {"mail": "ann"}, sensitivity=sensitivity)
    assert not {"ann", "smith", "mail"} & set(record_words(record).split())
    tagged = match_of(RecordQuery(all_tags=("ann",)), "p")
    assert set(tagged.every) <= set(record_words(record).split())


def fits(query: RecordQuery, record: Record, project: str = "p") -> bool:
    return matches(record_words(record).split(), match_of(query, project))


def test_filters_are_facets_of_a_project() -> None:
    private = Record("1", "p", "note.v1", tags=("a", "b"), visibility=Visibility.PRIVATE, created_by="ann")
    assert fits(RecordQuery(), private)
    assert not fits(RecordQuery(), private, "q")
    assert fits(RecordQuery(text="Deploy"), NOTE)
    assert not fits(RecordQuery(text="deploy"), NOTE, "q")
    assert not fits(RecordQuery(text="?!"), NOTE)
    assert fits(RecordQuery(schema_name="note.v1", any_tags=("x", "a"), all_tags=("a", "b"), created_by="ann"), private)
    for wrong in (
        RecordQuery(schema_name="note.v2"),
        RecordQuery(any_tags=("x",)),
        RecordQuery(all_tags=("a", "x")),
        RecordQuery(created_by="bob"),
        RecordQuery(reader="bob"),
        RecordQuery(public_only=True),
    ):
        assert not fits(wrong, private)
    assert fits(RecordQuery(reader="ann"), private)
    assert fits(RecordQuery(reader="bob", without_sensitive=True), NOTE)


def test_a_text_cannot_spell_a_facet() -> None:
    facet = match_of(RecordQuery(schema_name="secret.v1"), "p").every[0]
    forged = Record("2", "p", "note.v1", facet, (facet,), {facet: facet})
    assert facet not in record_words(forged).split()
    assert facet not in query_words(facet)


def test_the_text_for_an_embedding_begins_with_the_title() -> None:
    assert record_text(NOTE, 1_000) == "Deploy failed\npush\n502\nx\nops"
    assert record_text(NOTE, 10) == "Deploy fai"
