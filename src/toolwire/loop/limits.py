"""Where a turn stops by itself, and what the model is told when it does."""

from datetime import UTC, datetime

from msgspec.structs import replace

from toolwire.protocol.budgets import Budget, Number, Spending, least
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, Usage, UserMessage
from toolwire.protocol.turns import EndReason, Limits, Turn

ECHOES_KEPT = 20
CHARS_PER_TOKEN = 4
BYTES_PER_TOKEN_AT_LEAST = 3
OUTPUT_TOKENS = 4_096
"""What a model is expected to answer with at most, where neither the request nor the model says how much that is."""
DAY_S = 86_400
PARTS = ("calls", "tokens", "cost_usd", "wall_s")
"""The parts of a budget, as `Budget` and `Spending` call them."""

CLOSING_WORDS = {
    EndReason.ITERATION_LIMIT: "This is the last step and no more tools can be used.",
    EndReason.FAILURE_LIMIT: "Too many steps in a row failed, so no more tools can be used.",
    EndReason.STUCK: "The same call keeps giving the same result, so no more tools can be used.",
}
FINAL_REQUEST = "Answer the user now with what you know, and say what could not be done."
WARNING = (
    "You have made the same call again and got the same result. Repeating it will not help: "
    "use what you have, try something else, or answer."
)
MOST_REMINDERS = 2
"""How often a model is told with which tool its turn must end, before the turn has failed."""

WITHOUT_ANSWER = {
    EndReason.ITERATION_LIMIT: "I reached the limit of steps without an answer.",
    EndReason.FAILURE_LIMIT: "Too many steps in a row failed, and I have no answer.",
    EndReason.STUCK: "I kept repeating the same step and have no answer.",
    EndReason.TOKEN_BUDGET: "The token budget of this turn is used up.",
    EndReason.COST_BUDGET: "The money for this turn is used up.",
    EndReason.DEADLINE: "The time for this turn is over.",
}


def reminder(turn: Turn) -> str:
    """What a model is told whose turn must end with a tool, and that has answered in words or called it in vain."""
    return f"This turn must end with a call of {_required(turn)}, not with words. Call it now, with what you have."


def last_reminder(turn: Turn) -> str:
    """The same on the last step."""
    return f"This is the last step, and only {_required(turn)} can be called. Call it now, with what you know."


def without_required(turn: Turn) -> str:
    """What is said of a turn that had to end with a tool, and did not."""
    return f"The turn had to end with a call of {_required(turn)}, and the model did not make one that succeeded."


def _required(turn: Turn) -> str:
    return " or ".join(turn.limits.must_end_with)


def closing_reason(turn: Turn) -> EndReason | None:
    """Why the next step must be the last one, with tools off; None while the turn may go on."""
    if turn.repeats >= turn.limits.repeats:
        return EndReason.STUCK
    if turn.failures >= turn.limits.consecutive_failures:
        return EndReason.FAILURE_LIMIT
    if turn.iterations >= turn.limits.iterations - 1 and turn.limits.tools_enabled:
        return EndReason.ITERATION_LIMIT
    return None


def ending_reason(turn: Turn, now: float) -> EndReason | None:
    """Why the turn must end at once, without another word from the model; None while it may go on."""
    limits = turn.limits
    if limits.deadline_s is not None and now - turn.running_since - turn.waited_s >= limits.deadline_s:
        return EndReason.DEADLINE
    if limits.tokens is not None and turn.usage.total_tokens >= limits.tokens:
        return EndReason.TOKEN_BUDGET
    if limits.cost_usd is not None and (turn.usage.cost_usd or 0.0) >= limits.cost_usd:
        return EndReason.COST_BUDGET
    return None


def within_budget(limits: Limits, budget: Budget, spent: Spending) -> Limits:
    """A turn's limits cut down to what others have left of the day. What it may call is counted elsewhere."""
    return replace(
        limits,
        tokens=least(limits.tokens, _left(budget.tokens, spent.tokens)),
        cost_usd=least(limits.cost_usd, _left(budget.cost_usd, spent.cost_usd)),
        deadline_s=least(limits.deadline_s, _left(budget.wall_s, spent.wall_s))
        if limits.own_time
        else limits.deadline_s,
    )


def used_up(budget: Budget, spent: Spending) -> str:
    """The part of a day's budget of which nothing is left; empty while there is something of all."""
    for part in PARTS:
        allowed = getattr(budget, part)
        if allowed is not None and getattr(spent, part) >= allowed:
            return part
    return ""


def amount(part: str, number: float) -> str:
    """A number of a budget's part, in its unit."""
    match part:
        case "cost_usd":
            return f"{number:.4f} USD"
        case "wall_s":
            return f"{number:.1f} s"
    return f"{number:,} {part}"


def day_sentence(agent: str, budget: Budget, spent: Spending, part: str, now: float) -> str:
    """What is used up, how much of how much, and when it renews."""
    used, allowed = (amount(part, getattr(one, part)) for one in (spent, budget))
    everything = ", ".join(amount(each, getattr(spent, each)) for each in PARTS)
    return (
        f"agent {agent!r} has used up its budget of today: {used} of {allowed} (in all {everything}); "
        f"it renews at {renews_at(now)}"
    )


def renews_at(now: float) -> str:
    """When the next day begins, as a person would write it."""
    return f"{datetime.fromtimestamp((now // DAY_S + 1) * DAY_S, UTC):%Y-%m-%d %H:%M} UTC"


def _left(most: Number | None, used: Number) -> Number | None:
    return None if most is None else most - used


def time_left_s(turn: Turn, now: float) -> float | None:
    """Seconds until the turn's deadline, None when it has none."""
    if turn.limits.deadline_s is None:
        return None
    return max(0.0, turn.limits.deadline_s - (now - turn.running_since - turn.waited_s))


def estimated_usage(request: Request, reply: Reply) -> Usage:
    """About how many tokens a model used that does not say so: a budget must hold for it too."""
    said = sum(len(words_of(message)) for message in request.messages) + len(request.system)
    defined = sum(len(tool.description) + len(str(tool.input_schema)) for tool in request.tools)
    return Usage((said + defined) // CHARS_PER_TOKEN + 1, len(words_of(reply)) // CHARS_PER_TOKEN + 1)


def expected_usage(request: Request, most_output: int | None) -> Usage:
    """About how many tokens the answer to a request uses at most. A reservation should be too large, if anything."""
    said = sum(_bytes(words_of(message)) for message in request.messages) + _bytes(request.system)
    defined = sum(_bytes(tool.description) + _bytes(str(tool.input_schema)) for tool in request.tools)
    output = request.max_tokens or most_output or OUTPUT_TOKENS
    return Usage((said + defined) // BYTES_PER_TOKEN_AT_LEAST + 1, output)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def words_of(message: Message) -> str:
    """All that a message says, for counting."""
    match message:
        case Reply():
            return message.content + message.reasoning + "".join(str(call.arguments) for call in message.calls)
        case ResultsMessage(results):
            return "".join(result.text for result in results)
        case UserMessage(text) | Note(text):
            return text
