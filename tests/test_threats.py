"""The threat model as a promise: what was met stays met."""

from tests.marks import carriers
from tests.threats import PAGE, controls, met, page, state, threats

WITHOUT_CONTROL: frozenset[str] = frozenset()
"""Threats that have a contrast only: none. It stays so."""


def test_the_whole_threat_model_is_listed_once() -> None:
    numbers = [int(threat.id.removeprefix("T")) for threat in threats()]
    assert len(numbers) == len(set(numbers))
    assert set(range(1, 74)) <= set(numbers)


def test_every_number_on_a_test_is_a_threat() -> None:
    assert met().keys() | controls().keys() | carriers("contrast").keys() <= {threat.id for threat in threats()}


def test_every_threat_is_met_by_a_test_or_waits_for_a_part_that_does_not_exist() -> None:
    shown = met()
    assert [threat.id for threat in threats() if state(threat, shown) == "missing"] == []


def test_a_threat_that_is_met_waits_for_nothing() -> None:
    shown = met()
    assert [threat.id for threat in threats() if threat.waits_for and threat.id in shown] == []


def test_every_threat_that_is_met_has_a_control_or_at_least_a_contrast() -> None:
    without = met().keys() - controls().keys()

    assert without == WITHOUT_CONTROL
    assert without <= carriers("contrast").keys()


def test_the_page_about_threats_is_current() -> None:
    """Run `make docs` when this fails."""
    assert PAGE.read_text(encoding="utf-8") == page()
