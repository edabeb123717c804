"""What agents are offered of what devices say: checked, bounded, and never less strict than the operator says."""

from typing import Any

import pytest

from toolwire.edge.orchestrator.offered import DeviceLimits, offered_tools, read_device_tools
from toolwire.edge.orchestrator.presence import Device
from toolwire.protocol.tools import Edge, Effect, Tier

PIN = {"type": "object", "properties": {"pin": {"type": "integer"}}, "required": ["pin"]}


def said(name: str = "gpio_read", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Read a pin.", "input_schema": PIN, "effect": "pure", "tier": "CRAWL", **more}


def device(name: str, *listed: Any, limits: DeviceLimits = DeviceLimits()) -> Device:  # noqa: B008 -- frozen
    tools, faults = read_device_tools(name, listed, limits)
    return Device(name, tools=tools, faults=faults)


@pytest.mark.feature("F179")
def test_a_tool_of_one_device_is_offered_as_the_device_says_it() -> None:
    [tool] = offered_tools([device("pi", said(timeout_s=5, needs=["gpio"]))])

    assert (tool.name, tool.effect, tool.tier, tool.timeout_s) == ("gpio_read", Effect.PURE, Tier.CRAWL, 5.0)
    assert (tool.needs, tool.input_schema, tool.target) == (frozenset({"gpio"}), PIN, Edge("pi", "gpio_read"))


def test_devices_with_the_same_tool_share_one_with_a_choice() -> None:
    strict = said(tier="RUN", effect="unsafe", needs=["gpio"])
    [tool] = offered_tools([device("pi-1", said()), device("pi-2", strict)])

    assert tool.target == Edge("", "gpio_read")
    assert (tool.tier, tool.effect, tool.needs) == (Tier.RUN, Effect.UNSAFE, frozenset({"gpio"})), "the strictest"
    assert "There are pi-1, pi-2." in tool.input_schema["properties"]["agent"]["description"]
    assert tool.input_schema["required"] == ["pin"]


def test_a_tool_with_another_schema_has_a_name_of_its_own() -> None:
    other = said(input_schema={"type": "object", "properties": {"line": {"type": "string"}}})
    tools = offered_tools([device("a-pi", other), device("b-pi", said()), device("c-pi", said())])

    assert {tool.name: tool.target for tool in tools} == {
        "gpio_read": Edge("", "gpio_read"),
        "gpio_read_a_pi": Edge("a-pi", "gpio_read"),
    }


def test_T193_a_device_cannot_take_the_name_of_another_tool() -> None:
    tools = offered_tools([device("pi", said("bash"), said("read"), said())], taken={"bash", "read", "device_read"})
    assert {tool.name: tool.target for tool in tools} == {
        "device_bash": Edge("pi", "bash"),
        "gpio_read": Edge("pi", "gpio_read"),
    }
    twin = {"type": "object", "properties": {"line": {"type": "string"}}}
    hostile = device("x", said("gpio_read", input_schema=twin), said("gpio"))
    names = [tool.name for tool in offered_tools([device("pi", said()), hostile], taken={"gpio_read_x"})]
    assert names == ["gpio", "gpio_read"], "not even under the name that tells two devices apart"


def test_T193_control_a_name_that_is_free_is_offered() -> None:
    assert [tool.name for tool in offered_tools([device("pi", said())], taken={"bash"})] == ["gpio_read"]


def test_T194_a_device_cannot_make_its_tools_look_more_harmless_than_the_operator_says() -> None:
    limits = DeviceLimits(("gpio_*",), Tier.RUN, frozenset({"gpio"}), confirm=True, untrusted=True)
    shown = device("pi", said(), said("format_disk"), limits=limits)
    [tool] = offered_tools([shown])

    assert (tool.tier, tool.needs) == (Tier.RUN, frozenset({"gpio"}))
    assert (tool.requires_confirmation, tool.untrusted) == (True, True)
    assert [one.name for one in shown.tools] == ["gpio_read"]


def test_T194_a_tool_with_effects_is_never_of_the_lowest_tier() -> None:
    [tool] = device("pi", said(effect="unsafe", tier="CRAWL")).tools
    assert tool.tier is Tier.WALK


def test_T194_control_a_stricter_device_stays_stricter() -> None:
    [tool] = device("pi", said(tier="RUN", requires_confirmation=True), limits=DeviceLimits(tier=Tier.WALK)).tools
    assert (tool.tier, tool.requires_confirmation) == (Tier.RUN, True)


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        {},
        said(""),
        said("rm -rf"),
        said("x" * 65),
        said(description=""),
        said(input_schema=[]),
        said(input_schema={"type": "string"}),
        said(input_schema={"type": "object", "properties": {"a": {"type": "nonsense"}}}),
        said(input_schema={"type": "object", "properties": {"a": {"$ref": "https://example.test/x"}}}),
        said(output_schema=3),
        said(tier="GOD"),
        said(tier=9),
        said(effect="holy"),
        said(timeout_s=0),
        said(timeout_s=True),
        said(max_timeout_s=1e12),
        said(needs="gpio"),
        said(needs=["a b"]),
        said(needs=[["x"]]),
    ],
)
def test_a_tool_that_is_wrong_costs_only_itself(wrong: Any) -> None:
    shown = device("pi", wrong, said("fine"))

    assert [tool.name for tool in shown.tools] == ["fine"]
    assert len(shown.faults) == 1


def test_what_a_device_says_is_bounded() -> None:
    many = device("pi", *(said(f"t{number}") for number in range(1_000)))
    [long] = device("pi", said(description="word " * 5_000)).tools

    assert (len(many.tools), len(many.faults)) == (128, 1)
    assert len(long.description) <= 1_000
    assert len(device("pi", *([7] * 100)).faults) <= 20


def test_hundreds_of_devices_do_not_fill_the_context_of_a_model() -> None:
    [tool] = offered_tools([device(f"pi-{number:03}", said()) for number in range(500)])

    assert len(str(tool.input_schema)) < 2_000
    assert "and 450 more" in str(tool.input_schema)
