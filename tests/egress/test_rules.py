"""Which places a grant's network rules allow."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.execute.egress.hosts import BadHost, Host, read_host
from toolwire.execute.egress.rules import BadRule, RequestedAddress, Rules, read_rule

LABEL = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=12).filter(lambda s: not s.isdigit())
NAME = st.lists(LABEL, min_size=2, max_size=4).map(".".join).filter(lambda n: not n.rpartition(".")[2].startswith("0x"))
PORT = st.integers(1, 65535)


def asked(host: str, port: int = 443, scheme: str = "https", method: str = "GET") -> RequestedAddress:
    return RequestedAddress(read_host(host), port, scheme, method)


def allows(rules: list[str], place: RequestedAddress) -> bool:
    return Rules.of(rules).judge(place).allowed


@pytest.mark.feature("F124")
def test_only_a_listed_host_is_allowed() -> None:
    rules = ["example.org", "*.wiki.test"]

    assert allows(rules, asked("example.org"))
    assert allows(rules, asked("EXAMPLE.org."))
    assert allows(rules, asked("en.wiki.test"))
    assert allows(rules, asked("a.b.wiki.test"))
    for other in ("wiki.test", "evilwiki.test", "example.org.evil.test", "www.example.org", "example.com"):
        assert not allows(rules, asked(other))


@pytest.mark.feature("F125")
def test_a_rule_opens_its_address_and_port_only() -> None:
    rules = ["example.org", "example.org:8443", "93.184.216.34:8080"]

    assert allows(rules, asked("example.org", 443))
    assert allows(rules, asked("example.org", 80, "http"))
    assert allows(rules, asked("example.org", 8443))
    assert allows(rules, asked("93.184.216.34", 8080, "http"))
    assert not allows(rules, asked("example.org", 22))
    assert not allows(rules, asked("example.org", 443, "http"))
    assert not allows(rules, asked("93.184.216.34", 80, "http"))
    assert not allows(rules, asked("93.184.216.35", 8080, "http"))


def test_no_rules_allow_nothing() -> None:
    assert not allows([], asked("example.org"))


def test_a_denial_wins_wherever_it_stands() -> None:
    for rules in (["*.test.org", "!bad.test.org"], ["!bad.test.org", "*.test.org", "bad.test.org"]):
        assert allows(rules, asked("good.test.org"))
        assert not allows(rules, asked("bad.test.org"))
        assert not allows([*rules, "bad.test.org:8443"], asked("bad.test.org", 8443))


def test_T42_a_rule_with_methods_refuses_writing_and_tunnels_that_hide_the_method() -> None:
    rules = ["GET,HEAD example.org"]

    assert allows(rules, asked("example.org", method="GET"))
    assert not allows(rules, asked("example.org", method="POST"))
    assert not allows(rules, asked("example.org", method=""))
    assert "other methods" in Rules.of(rules).judge(asked("example.org", method="POST")).reason
    assert allows(["example.org"], asked("example.org", method="POST")), "the control: no methods, no limit"


def test_a_denied_method_also_closes_tunnels() -> None:
    rules = ["example.org", "!POST example.org"]

    assert allows(rules, asked("example.org", method="GET"))
    assert not allows(rules, asked("example.org", method="POST"))
    assert not allows(rules, asked("example.org", method=""))


@pytest.mark.parametrize(
    "rule",
    "* *.* *.com !* http://* a*.org *example.org example.org:0 example.org:65536 example.org:x example.org:* "
    "user@example.org example.org/path *.1.2.3.4 127.1 0x7f.0.0.1 2130706433 [::1 ex_ample.org -a.org a..b .org "
    "exa\\mple.org exam\x00ple.org exam\nple.org [fe80::1%eth0] xn--a.org ｅxample.org example。org".split(" "),
)
def test_a_rule_that_covers_too_much_or_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(BadRule):
        read_rule(rule)


def test_words_before_the_host_must_be_methods() -> None:
    with pytest.raises(BadRule, match="methods"):
        read_rule("FETCH example.org")


@pytest.mark.parametrize(("host", "port"), [("example.org", 8443), ("other.test", 443), ("[2606:4700::1]", 8443)])
def test_a_refusal_names_the_rule_that_would_allow_it(host: str, port: int) -> None:
    said = Rules.of(["example.org"]).judge(asked(host, port)).reason
    missing = said.split("'")[-2]

    assert f"the network rule {missing!r} would allow it" in said
    assert allows(["example.org", missing], asked(host, port))
    assert ("'example.org' allows another port" in said) == (host == "example.org")


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "[::ffff:10.0.0.1]"])
def test_no_rule_is_advised_that_would_not_help(host: str) -> None:
    said = Rules.of(["example.org"]).judge(asked(host)).reason

    assert "no rule opens it" in said
    assert "would allow it" not in said


def test_international_names_are_compared_as_a_labels() -> None:
    assert allows(["bücher.example"], asked("xn--bcher-kva.example"))
    assert allows(["Bücher.example"], asked("bücher.EXAMPLE"))
    assert allows(["*.video.example"], asked("r3---sn-abc.video.example"))
    assert not allows(["apple.com"], asked("аpple.com")), "the first letter is Cyrillic"


@given(NAME, PORT)
def test_an_exact_rule_allows_itself_and_nothing_around_it(name: str, port: int) -> None:
    rules = Rules.of([f"{name}:{port}"])

    assert rules.judge(asked(name, port)).allowed
    assert not rules.judge(asked(f"x.{name}", port)).allowed
    assert not rules.judge(asked(f"x{name}", port)).allowed
    assert not rules.judge(asked(f"{name}.test", port)).allowed
    assert not rules.judge(asked(name, port % 65535 + 1)).allowed


@given(NAME, LABEL)
def test_a_wildcard_allows_what_is_below_and_not_the_name_itself(name: str, label: str) -> None:
    rules = Rules.of([f"*.{name}"])

    assert rules.judge(asked(f"{label}.{name}")).allowed
    assert not rules.judge(asked(name)).allowed
    assert not rules.judge(asked(f"{label}{name}")).allowed


@given(st.lists(NAME, min_size=1, max_size=5), st.data())
def test_adding_a_denial_never_allows_more(names: list[str], data: st.DataObject) -> None:
    denied, place = data.draw(st.sampled_from(names)), asked(data.draw(st.sampled_from(names)))

    with_denial = allows([*names, f"!{denied}"], place)

    assert with_denial == (place.host.name != denied)


@given(st.text(max_size=80))
def test_whatever_is_read_as_a_host_has_one_canonical_spelling(text: str) -> None:
    try:
        host = read_host(text)
    except BadHost:
        return
    assert read_host(str(host)) == host
    assert len(host.name) <= 253
    assert set(host.name) <= set(string.ascii_lowercase + string.digits + "-.:")


@given(st.text(max_size=60))
def test_a_rule_is_read_or_refused_and_nothing_else_happens(text: str) -> None:
    try:
        rule = read_rule(text)
    except BadRule:
        return
    assert isinstance(rule.host, Host)


def test_every_rule_in_the_docs_can_be_written_and_those_it_excludes_cannot() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "network.md").read_text(encoding="utf-8")
    shown = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]

    assert len(Rules.of(shown).rules) >= 7
    for excluded in ("*", "*.com"):
        assert f"`{excluded}`" in page
        with pytest.raises(BadRule):
            read_rule(excluded)
