"""The rules that tools hold to on the way: on the file that is really opened, on every redirect."""

import pytest

from toolwire import Grant, Tier
from toolwire.decide.address_rules import AddressRules
from toolwire.decide.families import RuleReach
from toolwire.decide.path_rules import KEYS, PathRules
from toolwire.protocol.policy import Rule

ASK_PAGE, DENY_PAGE = (
    Rule.parse("ask webfetch where url is http://x.test/a*"),
    Rule.parse("deny webfetch where url is http://x.test/b*"),
)
DENY_HOST = Rule.parse("deny webfetch where url is http://y.test*")
READ, LIST, WRITE = (
    Rule.parse(f"{said} where path is {path}")
    for said, path in (("deny read", "secrets/*"), ("deny list", "hidden/*"), ("ask write", "*.lock"))
)
ASK_READ = Rule.parse("ask read where path is notes/*")
ALLOW = Rule.parse("allow webfetch where url is http://x.test/c*")


def pages(*rules: Rule) -> AddressRules:
    return AddressRules.of(Grant(Tier.RUN, rules=rules))


def files(*rules: Rule, about: RuleReach = RuleReach.CONTENT, named: tuple[str, ...] = (), **more: object) -> PathRules:
    return PathRules.of(Grant(Tier.RUN, roots=("/w",), rules=rules, **more), about, named)  # type: ignore[arg-type]


def test_rules_about_pages_are_those_that_deny_or_ask_about_them() -> None:
    found = pages(ASK_PAGE, DENY_PAGE, ALLOW, READ)

    assert found.rules == (ASK_PAGE, DENY_PAGE)
    assert found.denying() == AddressRules((DENY_PAGE,))
    assert found.asked_about("http://x.test/a1") == {ASK_PAGE}
    assert found.asked_about("http://x.test/b1") == frozenset()


def test_a_page_is_refused_by_what_denies_it_or_was_not_asked_about() -> None:
    found = pages(ASK_PAGE, DENY_PAGE, DENY_HOST)

    asked, denied = found.refusal("http://x.test/a1"), found.refusal("http://x.test/b1")
    assert asked == f"a rule asks about http://x.test/a1 ({ASK_PAGE}); call the tool with that address"
    assert denied == f"a rule denies http://x.test/b1 ({DENY_PAGE})"
    assert found.refusal("http://x.test/a1", answered={ASK_PAGE}) == ""
    assert found.refusal("http://x.test/c") == ""
    assert found.refusal("http://x.test") == ""
    assert found.refusal("http://y.test") == f"a rule denies http://y.test ({DENY_HOST})"


def test_one_page_is_refused_and_a_host_only_with_all_its_pages() -> None:
    found = pages(Rule.parse("deny webfetch where url is http://x.test/a"))

    assert found.refusal("http://x.test/a") != ""
    assert found.refusal("http://x.test/ab") == ""
    assert found.refusal("http://x.test") == ""
    assert pages(Rule.parse("deny webfetch where url is http://x.test/")).refusal("http://x.test") == ""


def test_a_long_address_is_shown_in_part() -> None:
    found = pages(DENY_HOST)
    page, host = f"http://y.test/{'a' * 400}", f"http://y.test{'a' * 400}"

    assert found.refusal(page) == f"a rule denies {page[:300]} ({DENY_HOST})"
    assert f" pages of {host[:300]}, and" in found.refusal_unseen(host)


def test_of_a_host_whose_pages_are_not_seen_any_page_may_be_meant() -> None:
    found = pages(ASK_PAGE, DENY_HOST)

    unseen = "and which page is meant cannot be seen"
    assert found.refusal_unseen("http://x.test") == f"a rule asks about pages of http://x.test, {unseen} ({ASK_PAGE})"
    assert found.refusal_unseen("http://y.test") == f"a rule denies pages of http://y.test, {unseen} ({DENY_HOST})"
    assert found.refusal_unseen("http://z.test") == ""
    assert found.refusal_unseen("http://x.test/c") == ""
    assert found.refusal_unseen("http://x.test/a") == found.refusal("http://x.test/a") != ""
    assert pages(Rule.parse("deny webfetch where url is *secret*")).refusal_unseen("http://x.test") != ""


def test_a_file_is_kept_by_rules_about_this_use_of_it() -> None:
    content = files(READ, LIST, WRITE)

    assert content.rules == (READ,)
    assert files(READ, LIST, WRITE, about=RuleReach.NAMES).rules == (READ, LIST)
    assert files(READ, LIST, WRITE, about=RuleReach.CHANGES).rules == (WRITE,)
    assert (content.against("secrets/k"), content.against("src/a")) == (READ, None)
    assert (content.denial("secrets/k"), content.denial("src/a")) == (READ, None)
    assert (content.against_folder("secrets"), content.against_folder("src")) == (READ, None)


def test_a_rule_that_asks_was_answered_where_the_call_named_such_a_path() -> None:
    unasked, asked = files(ASK_READ), files(ASK_READ, named=("notes/a",))

    assert (unasked.against("notes/b"), asked.against("notes/b")) == (ASK_READ, None)
    assert (unasked.against_folder("notes"), asked.against_folder("notes")) == (ASK_READ, None)
    assert unasked.denial("notes/b") is None
    assert files(READ, named=("secrets/k",)).against("secrets/k") == READ


def test_files_with_keys_are_kept_unless_they_were_named_or_anything_may_be_shown() -> None:
    assert files().against(".env") is KEYS
    assert files().against("a.py") is None
    assert files(named=(".env",)).against(".env") is None
    assert files(named=("a.py",)).against(".env") is KEYS
    assert files(about=RuleReach.NAMES).against(".env") is None
    assert files(confirmed=frozenset({"*"})).against(".env") is None
    assert files(confirmed=frozenset({"read"})).against(".env") is KEYS
    assert files(Rule.parse("allow read")).against(".env") is None
    assert files(Rule.parse("allow list")).against(".env") is KEYS
    assert files(Rule.parse("allow read where path is src/*")).against(".env") is KEYS


@pytest.mark.parametrize(
    ("held", "any_held"),
    [(files(READ, about=RuleReach.NAMES), True), (files(about=RuleReach.NAMES), False), (files(), True)],
)
def test_rules_are_true_where_something_is_held(held: PathRules, any_held: bool) -> None:
    assert bool(held) is any_held
