"""Every sample of every family, without being told the format."""

from typing import Any

import pytest

from .cases import CASES, differences, read_case


@pytest.mark.feature("F082")
@pytest.mark.feature("F093")
@pytest.mark.feature("F102")
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_sample_is_read_as_expected_without_a_hint(case: dict[str, Any]) -> None:
    assert differences(case, read_case(case)) == []


NATIVE = [case for case in CASES if case["provider"] not in ("text", "generic")]


@pytest.mark.parametrize("case", NATIVE, ids=[case["id"] for case in NATIVE])
def test_a_native_sample_is_read_the_same_when_its_provider_is_named(case: dict[str, Any]) -> None:
    assert differences(case, read_case(case, case["provider"])) == []
