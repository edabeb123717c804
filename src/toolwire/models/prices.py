"""What a reply cost, where the optional package `genai-prices` knows the model; unknown otherwise."""

import asyncio
import importlib
from functools import cache
from typing import Any

from msgspec.structs import replace

from toolwire.protocol.chat import Reply, Usage


async def with_cost(reply: Reply, price_list: str) -> Reply:
    """The same reply with its cost in US dollars, if the provider's price list has its model."""
    usage = reply.usage
    if not price_list or not usage.total_tokens or usage.cost_usd is not None:
        return reply
    cost = await asyncio.to_thread(cost_usd, usage, reply.model, price_list)  # the price tables take a while to load
    return replace(reply, usage=replace(usage, cost_usd=cost))


def cost_usd(usage: Usage, model: str, price_list: str) -> float | None:
    """The price of this usage at today's prices; None when it is not known."""
    prices = _price_tables()
    if prices is None:
        return None
    counts = prices.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=min(usage.cached_tokens, usage.input_tokens),
    )
    try:
        return float(prices.calc_price(counts, model, provider_id=price_list).total_price)
    except (LookupError, ValueError):
        return None


@cache
def _price_tables() -> Any:
    """The optional package, loaded when the first reply is priced: its tables take a third of a second to import."""
    try:
        return importlib.import_module("genai_prices")
    except ImportError:
        return None
