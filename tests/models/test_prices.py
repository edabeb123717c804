"""What a reply cost."""

import subprocess
import sys

import pytest

from toolwire.models.opening import open_model
from toolwire.models.prices import cost_usd, with_cost
from toolwire.protocol.chat import Reply, Usage

USAGE = Usage(input_tokens=1_000_000, output_tokens=100_000, cached_tokens=200_000)


@pytest.mark.feature("F158")
async def test_a_reply_of_a_known_model_says_what_it_cost() -> None:
    """Prices as published for gpt-4o-mini: 0.15, 0.075 cached and 0.60 dollars for a million tokens."""
    reply = await with_cost(Reply(usage=USAGE, model="gpt-4o-mini-2024-07-18"), "openai")

    assert reply.usage.cost_usd == pytest.approx(0.8 * 0.15 + 0.2 * 0.075 + 0.1 * 0.60)


@pytest.mark.feature("F158")
async def test_cached_tokens_of_anthropic_are_cheaper_input() -> None:
    reply = await with_cost(Reply(usage=USAGE, model="claude-sonnet-4-5"), "anthropic")

    assert reply.usage.cost_usd is not None
    assert reply.usage.cost_usd > 0
    uncached = Usage(USAGE.input_tokens, USAGE.output_tokens)
    assert reply.usage.cost_usd < (cost_usd(uncached, "claude-sonnet-4-5", "anthropic") or 0)


@pytest.mark.parametrize(("model", "price_list"), [("no-such-model", "openai"), ("gpt-4o", "nobody"), ("gpt-4o", "")])
async def test_an_unknown_price_is_unknown_and_not_zero(model: str, price_list: str) -> None:
    reply = await with_cost(Reply(usage=USAGE, model=model), price_list)

    assert reply.usage.cost_usd is None


@pytest.mark.parametrize(("url", "priced"), [(None, True), ("http://127.0.0.1:9/v1", False)])
def test_only_the_providers_own_address_has_its_prices(url: str | None, priced: bool) -> None:
    model = open_model("openai:gpt-4o-mini", base_url=url, api_key="k", environ={})

    assert bool(getattr(model, "site").price_list) is priced  # noqa: B009 -- a chat model need not have one


def test_without_the_optional_package_the_cost_is_unknown() -> None:
    program = (
        "import sys; sys.modules['genai_prices'] = None\n"
        "from toolwire.models.prices import cost_usd\n"
        "from toolwire.protocol.chat import Usage\n"
        "print(cost_usd(Usage(10, 10), 'gpt-4o', 'openai'))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    assert said.stdout.strip() == "None"
