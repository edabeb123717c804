"""What every store counts and audits, and the large bodies it keeps."""

import hashlib

import pytest
from msgspec.structs import replace

from toolwire.errors import NotFound
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import LoopMetrics, Store, TurnStats

from .conftest import NOW
from .samples import a_call, a_card, a_row, a_turn, failure, success


async def end_a_turn(store: Store, name: str, reason: EndReason, stats: TurnStats) -> None:
    turn = a_turn(name)
    await store.begin(turn)
    await store.end(replace(turn, ending=Ending(reason, "")), stats)


@pytest.mark.feature("F219")
async def test_each_tool_has_its_counts_times_and_last_error(store: Store) -> None:
    calls = [a_call(f"call-{n}") for n in range(5)]
    results = [
        success(calls[0], elapsed_ms=10.0),
        success(calls[1], elapsed_ms=30.0),
        failure(calls[2], elapsed_ms=5.0),
        failure(calls[3], Code.TIMEOUT, elapsed_ms=100.0),
        failure(calls[4], Code.CANCELED, elapsed_ms=1.0),
    ]
    for call, result in zip(calls, results, strict=True):
        await store.open(a_card(call), [])
        await store.close(a_card(call), result, [])
    await store.open(a_card(a_call("other", "clock"), result=success(a_call("other", "clock"))), [])

    tools, _ = await store.metrics()

    clock, thermometer = tools
    assert (clock.tool, clock.calls, clock.success) == ("clock", 1, 1)
    assert (thermometer.calls, thermometer.success, thermometer.errors) == (5, 2, 1)
    assert (thermometer.timeouts, thermometer.canceled) == (1, 1)
    assert (thermometer.total_ms, thermometer.max_ms) == (146.0, 100.0)
    assert (thermometer.p50_ms, thermometer.p95_ms) == (10.0, 100.0)
    assert (thermometer.last_error, thermometer.last_error_at) == ("timeout: the sensor is silent", NOW)


async def test_errors_are_counted_by_their_code(store: Store) -> None:
    """What a result says is no error of its own, even if it looks like one."""
    codes = [None, Code.TIMEOUT, Code.NOT_FOUND, Code.TIMEOUT, Code.PERMISSION_DENIED]
    for number, code in enumerate(codes):
        call = a_call(f"call-{number}")
        result = failure(call, code) if code else replace(success(call), structured={"error": {"code": "made up"}})
        await store.open(a_card(call, result=result), [])

    ((tool,), _) = await store.metrics()

    assert tool.errors_by_type == {"not_found": 1, "permission_denied": 1, "timeout": 2}


async def test_names_that_models_invent_share_one_line(store: Store) -> None:
    for n in range(50):
        call = a_call(f"call-{n}", f"invented_{n}")
        await store.open(a_card(call, tool_version="", result=failure(call, Code.NOT_FOUND)), [])

    (tools, _) = await store.metrics()

    assert [(tool.tool, tool.calls) for tool in tools] == [("(unknown)", 50)]


async def test_a_partial_result_is_neither_success_nor_error(store: Store) -> None:
    partial = replace(success(), status=Status.PARTIAL)
    await store.open(a_card(result=partial), [])

    ((tool,), _) = await store.metrics()

    assert (tool.calls, tool.success, tool.errors, tool.last_error) == (1, 0, 0, "")


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -5.0])
async def test_a_time_that_cannot_be_does_not_spoil_the_sums(store: Store, odd: float) -> None:
    await store.open(a_card(result=success(elapsed_ms=odd)), [])
    await store.open(a_card(a_call("b"), result=success(a_call("b"), elapsed_ms=4.0)), [])

    ((tool,), _) = await store.metrics()

    assert (tool.calls, tool.total_ms, tool.max_ms, tool.p95_ms) == (2, 4.0, 4.0, 4.0)


@pytest.mark.feature("F220")
@pytest.mark.feature("F221")
@pytest.mark.feature("F222")
async def test_the_loop_sums_its_turns_and_says_how_many_recovered(store: Store) -> None:
    """A turn recovered when a call of it failed and it still ended in an answer."""
    assert (await store.metrics())[1] == LoopMetrics()
    smooth = TurnStats(2, 1, 0, 100.0, batches=1, max_concurrency=3, saved_ms=40.0, input_tokens=9, output_tokens=4)
    bumpy = TurnStats(4, 5, 2, 300.0, batches=2, max_concurrency=2, saved_ms=10.0, cost_usd=0.25)
    await end_a_turn(store, "a", EndReason.ANSWERED, smooth)
    await end_a_turn(store, "b", EndReason.ANSWERED, bumpy)
    await end_a_turn(store, "c", EndReason.FAILURE_LIMIT, bumpy)

    _, loop = await store.metrics()

    assert (loop.turns, loop.answered, loop.iterations, loop.total_ms) == (3, 2, 10, 700.0)
    assert (loop.batches, loop.max_concurrency, loop.saved_ms) == (5, 3, 60.0)
    assert (loop.with_failures, loop.recovered) == (2, 1)
    assert (loop.input_tokens, loop.output_tokens, loop.cost_usd) == (9, 4, 0.5)


@pytest.mark.feature("F223")
async def test_every_step_of_a_call_is_audited_in_order_and_with_its_words(store: Store) -> None:
    card = a_card()
    accepted = a_row("accepted", rule="allowed by grant", args_digest="d", detail={"note": "hot \ud800", "n": 10**30})
    await store.open(card, [accepted])
    await store.claim(card, [a_row("started")])
    await store.close(card, success(), [a_row("finished", status="success", elapsed_ms=2.5)])
    await store.audit([a_row("looked at"), a_row("exported")])

    rows = await store.audit_log()

    assert [row.event for row in rows] == ["accepted", "started", "finished", "looked at", "exported"]
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5]
    assert replace(rows[0], seq=0) == accepted
    assert (rows[2].status, rows[2].elapsed_ms) == ("success", 2.5)


async def test_the_audit_log_is_read_by_turn_tool_and_place(store: Store) -> None:
    clock = a_card(a_call("c", "clock"), a_turn("turn-2"))
    await store.audit([a_row("a"), a_row("b", clock), a_row("c"), a_row("d", clock)])

    async def events(**wanted: object) -> list[str]:
        return [row.event for row in await store.audit_log(**wanted)]  # type: ignore[arg-type]  # spread for brevity

    assert await events(limit=2) == ["c", "d"]
    assert await events(turn_id="turn-1") == ["a", "c"]
    assert await events(turn_id="turn-2", tool="thermometer") == []
    assert await events(tool="clock") == ["b", "d"]
    assert await events(after=2) == ["c", "d"]
    assert await events(after=4) == []
    assert await events(limit=0) == []


async def test_a_large_body_is_kept_by_its_content_and_read_in_ranges(store: Store) -> None:
    body = bytes(range(256)) * 4096

    handle = await store.keep(body)

    assert handle == f"sha256:{hashlib.sha256(body).hexdigest()}"
    assert await store.keep(body) == handle
    assert await store.fetch(handle) == body
    assert await store.fetch(handle, offset=254, length=4) == b"\xfe\xff\x00\x01"
    assert await store.fetch(handle, offset=len(body) - 1) == b"\xff"
    assert await store.fetch(handle, offset=len(body) + 5) == b""
    assert await store.fetch(await store.keep(b"")) == b""


@pytest.mark.parametrize(
    "handle",
    [
        "sha256:" + "0" * 64,
        "sha256:" + "A" * 64,
        "sha256:../../../store.db",
        "sha256:" + "0" * 63 + "/",
        "sha256:" + "0" * 64 + "\n",
        "sha256:" + "٠" * 64,
        "md5:" + "0" * 32,
        "0" * 64,
        "",
        "\0",
    ],
)
async def test_a_handle_that_is_not_ours_fetches_nothing(store: Store, handle: str) -> None:
    with pytest.raises(NotFound):
        await store.fetch(handle)
