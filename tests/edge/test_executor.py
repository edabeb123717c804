"""Calls of tools that live on devices: sent, answered, lost, late, repeated and forged. On both brokers."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.edge.brokers import AnyBroker, NatsMqtt, running
from tests.edge.simulated import FAST, SimulatedDevice
from toolwire import Agent, Context, Grant, MemoryStore, Tier, tool
from toolwire.bus.nats_connection import NatsServers
from toolwire.edge.link import MqttBroker, MqttLink
from toolwire.edge.nats_link import NatsLink
from toolwire.edge.orchestrator import presence
from toolwire.edge.orchestrator.client import DeviceClient, command_for
from toolwire.edge.orchestrator.connection import DeviceConnection
from toolwire.edge.orchestrator.executor import EdgeExecutor, EdgeLimits
from toolwire.edge.orchestrator.offered import offered_tools
from toolwire.edge.orchestrator.placements import StoredPlacements
from toolwire.edge.orchestrator.unexpected import UnexpectedReports
from toolwire.errors import Suspended
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.router import Router
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.events import CallProgress, Event, OutputDelta
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Effect, Tool
from toolwire.protocol.waits import Until
from toolwire.record.contract import Store
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import ScriptedModel, call
from toolwire.wire.mqtt.commands import CommandKind
from toolwire.wire.mqtt.reports import AgentState, EdgeReport, report_to
from toolwire.wire.mqtt.topics import AgentChannel, Topics

BOUND_S = 5
_numbers = itertools.count(1)
QUICK = EdgeLimits(margin_s=0.5, grace_s=0.5)


class Hub:
    """An orchestrator's process: its agent, its store and its connection."""

    def __init__(self, connection: DeviceConnection, store: Store, limits: EdgeLimits) -> None:
        self.client = connection.client
        self.store = store
        self.executor = EdgeExecutor(self.client, limits)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return offered_tools(self.client.registry.devices())

    def agent(self, *script: Any, **more: Any) -> Agent:
        router = Router(InProcessExecutor(), edge=self.executor)
        grant = Grant(tier=Tier.RUN, confirmed=frozenset({"*"}))
        return Agent(ScriptedModel(*script), list(self.tools), store=self.store, executor=router, grant=grant, **more)

    async def call(self, name: str, **arguments: Any) -> ToolResult:
        return await self.agent().call(name, arguments)

    async def events(self, event: str) -> list[str]:
        return [row.code or str(row.status) for row in await self.store.audit_log() if row.event == event]


class Place:
    """A broker with topics of its own, so that no test sees devices of another."""

    def __init__(self, broker: AnyBroker) -> None:
        self.broker = broker
        self.topics = Topics(f"t{next(_numbers)}")

    def device(self, name: str, tools: Iterable[Tool] = (), **more: Any) -> SimulatedDevice:
        return SimulatedDevice(name, self.broker.mqtt_port, tools, topics=self.topics, **more)

    @asynccontextmanager
    async def hub(
        self, *, over_nats: bool = False, limits: EdgeLimits = QUICK, store: Store | None = None
    ) -> AsyncIterator[Hub]:
        store = store or MemoryStore()
        unexpected = UnexpectedReports(store, "default", grace_s=0.0)
        client = DeviceClient(self.topics, unexpected=unexpected)

        def open_link(receive: Any, filters: Any, on_connect: Any) -> Any:
            if over_nats:
                assert isinstance(self.broker, NatsMqtt)
                return NatsLink(NatsServers((self.broker.url,)), receive, filters=filters, on_connect=on_connect)
            where = MqttBroker("127.0.0.1", f"hub-{next(_numbers)}", self.broker.mqtt_port)
            return MqttLink(where, receive, filters=filters, on_connect=on_connect, pauses=FAST)

        async with DeviceConnection(client, open_link, unexpected) as connection:
            assert await connection.know_devices(BOUND_S)
            yield Hub(connection, store, limits)


@pytest.fixture
def place(broker: AnyBroker) -> Place:
    return Place(broker)


@pytest.fixture
def here(mosquitto: AnyBroker) -> Place:
    """Where the broker makes no difference."""
    return Place(mosquitto)


def code_of(result: ToolResult) -> Code | None:
    return result.error.code if result.error else None


async def eventually(look: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not await look():  # noqa: ASYNC110 -- it happens in another task
            await asyncio.sleep(0.01)


async def die(asking: "asyncio.Task[Any]", store: SqliteStore) -> None:
    """As a process that is killed: its store is gone, and nothing is written down any more."""
    await store.close_store()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def until(look: Callable[[], Any]) -> Any:
    async with asyncio.timeout(BOUND_S):
        while not (found := look()):  # noqa: ASYNC110 -- it happens in another process
            await asyncio.sleep(0.01)
    return found


@tool(effect=Effect.PURE, tier=Tier.CRAWL)
async def read_temperature(context: Context, unit: str = "C") -> str:
    """Read the temperature of the processor."""
    context.progress("reading", 0.5)
    return f"45.6 {unit}"


@tool(effect=Effect.UNSAFE, tier=Tier.WALK, timeout_s=0.3, max_timeout_s=60)
async def gpio_write(pin: int, value: int) -> str:
    """Set a pin."""
    return f"{pin}={value}"


@tool(effect=Effect.UNSAFE, timeout_s=30)
async def hang() -> str:
    """Wait for ever."""
    await asyncio.sleep(600)
    return ""


TOOLS = (read_temperature, gpio_write, hang)


@pytest.mark.feature("F179", "F201")
async def test_a_model_picks_a_tool_of_a_device_and_answers_with_what_that_gave(place: Place) -> None:
    async with place.device("living-room-pi", TOOLS) as pi, place.hub() as one:
        answer = await one.agent(call("read_temperature", unit="C"), "It is 45.6 °C.").ask("Check the CPU temperature")

    [command] = pi.commands
    assert answer.text == "It is 45.6 °C."
    assert (command.payload["tool"], dict(command.payload["parameters"])) == ("read_temperature", {"unit": "C"})
    assert [card.result.text for card in await one.store.calls() if card.result] == ["45.6 C"]


async def test_an_orchestrator_speaks_nats_and_its_devices_mqtt_with_one_server(nats_mqtt: AnyBroker) -> None:
    """It knows what devices had published before it connected, and hears what they publish afterwards."""
    place = Place(nats_mqtt)
    async with place.device("pi-1", TOOLS) as pi, place.hub(over_nats=True) as one:
        first = await one.call("read_temperature")
        async with place.device("pi-2", TOOLS):
            await until(
                lambda: presence_of(one, "pi-2") == "online" and len(one.client.registry.with_tool("hang")) == 2
            )
            second = await one.call("gpio_write", pin=17, value=1, agent="pi-2")

    assert (first.text, second.text) == ("45.6 C", "17=1")
    assert sum(pi.runs.values()) == 1


def presence_of(one: Hub, name: str) -> str:
    device = one.client.registry.device(name)
    return "" if device is None else device.at(one.client.now)


async def test_a_call_for_a_device_that_is_not_there_fails_at_once(here: Place) -> None:
    async with here.hub() as one:
        async with here.device("shed", TOOLS) as shed:
            pass
        await until(lambda: presence_of(one, "shed") == "offline")
        result = await one.call("gpio_write", pin=1, value=1)

    assert code_of(result) is Code.UNAVAILABLE
    assert "'gpio_write' was not started: the device shed is offline" in result.text
    assert shed.commands == []


@pytest.mark.parametrize("over_nats", [False, True])
async def test_a_device_that_the_broker_kept_as_online_is_there_only_if_it_answers(
    place: Place, over_nats: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last will is lost, such as by a crash of the broker. What was kept may be of any age."""
    monkeypatch.setattr(presence, "CONFIRM_S", 0.1)
    async with place.device("shed", TOOLS) as shed:
        pass
    lost = b'{"status":"online","boot":"1","session":"s","heartbeat_s":15}'
    broker = MqttBroker("127.0.0.1", f"lost-{next(_numbers)}", place.broker.mqtt_port)
    async with MqttLink(broker, lambda one: one.acknowledge()) as link:
        await link.connected.wait()
        await link.publish(place.topics.of("shed", AgentChannel.STATUS), lost, retain=True)
    async with place.hub(over_nats=over_nats and isinstance(place.broker, NatsMqtt)) as one:
        gone = await one.call("gpio_write", pin=1, value=1)
        async with place.device("shed", TOOLS):
            await until(lambda: presence_of(one, "shed") == "online")
            back = await one.call("gpio_write", pin=1, value=1)

    assert code_of(gone) is Code.UNAVAILABLE
    assert "was not started: the device shed does not answer" in gone.text
    assert back.text == "1=1"
    assert shed.commands == []


async def test_a_draining_device_takes_no_more_calls(here: Place) -> None:
    async with here.device("shed", TOOLS) as shed, here.hub() as one:
        await shed.say_state(AgentState.DRAINING)
        await until(lambda: presence_of(one, "shed") == "draining")
        result = await one.call("gpio_write", pin=1, value=1)

    assert "the device shed is draining and takes no more calls" in result.text
    assert shed.commands == []


async def test_a_call_waits_for_its_device_where_the_settings_say_so(here: Place) -> None:
    async with here.hub(limits=EdgeLimits(queue_s=BOUND_S)) as one:
        async with here.device("shed", TOOLS):
            pass
        await until(lambda: presence_of(one, "shed") == "offline")
        waiting = asyncio.create_task(one.call("gpio_write", pin=1, value=1))
        await asyncio.sleep(0)
        async with here.device("shed", TOOLS) as shed:
            result = await waiting

    assert (result.text, sum(shed.runs.values())) == ("1=1", 1)


async def test_a_call_that_waited_in_vain_is_never_sent(here: Place) -> None:
    async with here.hub(limits=EdgeLimits(queue_s=0.1)) as one:
        async with here.device("shed", TOOLS):
            pass
        await until(lambda: presence_of(one, "shed") == "offline")
        result = await one.call("gpio_write", pin=1, value=1)
        async with here.device("shed", TOOLS) as shed:
            await until(lambda: presence_of(one, "shed") == "online")
            await one.client.ask(command_for("shed", CommandKind.PING, "p1", {}), BOUND_S)

    assert code_of(result) is Code.UNAVAILABLE
    assert "was not started" in result.text
    assert shed.commands == []


@pytest.mark.parametrize(("queue_s", "said"), [(60.0, "1=1"), (0.2, "was not started: the device shed is offline")])
async def test_a_turn_waits_for_a_device_that_is_away_and_no_process_does(
    here: Place, queue_s: float, said: str
) -> None:
    """It goes on when it is taken up after the device came back, or when its time is over. The call runs once."""
    store, limits = MemoryStore(), EdgeLimits(queue_s=queue_s, stays_s=0.05, again_s=0.05)
    async with here.hub(store=store, limits=limits) as one:
        one.executor = EdgeExecutor(one.client, limits, StoredPlacements(store))
        async with here.device("shed", TOOLS):
            pass
        await until(lambda: presence_of(one, "shed") == "offline")
        with pytest.raises(Suspended) as left:
            await one.agent(call("gpio_write", pin=1, value=1), "Done.").ask("Switch it on")
        [wait] = left.value.waits
        assert isinstance(wait, Until)
        assert str(wait) == "a device with gpio_write"
        with pytest.raises(Suspended):  # another process looks, and leaves it again
            await one.agent("Done.").resume(left.value.turn_id)
        if queue_s > 1:
            async with here.device("shed", TOOLS) as shed:
                await until(lambda: presence_of(one, "shed") == "online")
                answer = await one.agent("Done.").resume(left.value.turn_id)
            assert sum(shed.runs.values()) == 1
        else:
            answer = await ended(one, left.value.turn_id)

    [card] = await store.calls()
    assert card.result is not None
    assert (answer.text, said in card.result.text) == ("Done.", True), card.result


async def ended(one: Hub, turn_id: str) -> Any:
    """Take a turn up until it does not wait any more, as a runner does."""
    async with asyncio.timeout(BOUND_S):
        while True:
            with suppress(Suspended):
                return await one.agent("Done.").resume(turn_id)


async def test_orchestrators_that_come_and_go_refuse_nothing_of_each_other(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    async with here.hub() as one, here.device("shed", TOOLS):
        async with here.hub() as other:
            await until(lambda: presence_of(one, "shed") == presence_of(other, "shed") == "online")
        assert (await one.agent(call("gpio_write", pin=1, value=1), "Done.").ask("Switch it on")).text == "Done."
        assert await one.events("report_refused") == []
    assert "is refused" not in caplog.text


@pytest.mark.parametrize(("name", "code"), [("gpio_write", Code.OUTCOME_UNKNOWN), ("peek", Code.TIMEOUT)])
async def test_a_call_whose_report_never_comes_ends_all_the_same_and_the_report_is_on_record(
    here: Place, name: str, code: Code
) -> None:
    peek = replace(gpio_write, name="peek", effect=Effect.PURE)
    async with here.device("shed", (gpio_write, peek)) as shed, here.hub() as one:
        shed.mute = True
        result = await one.call(name, pin=1, value=1)
        shed.mute = False
        for _ in range(3):
            [key] = shed.kept
            await shed.repeat_report(key)
        await eventually(lambda: one.events("late_result"))
        late = await one.events("late_result")

    assert code_of(result) is code
    assert late == ["success"], "once, however often it comes"
    [card] = await one.store.calls()
    assert card.result is not None
    assert card.result.error is not None, "the result on record is the first one"


async def test_a_canceled_call_is_canceled_on_its_device(place: Place) -> None:
    async with place.device("shed", TOOLS) as shed, place.hub() as one:
        running = asyncio.create_task(one.call("hang"))
        await until(lambda: shed.runs)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: shed.kept)

    assert [command.kind for command in shed.commands] == [CommandKind.TOOL, CommandKind.CANCEL]
    [card] = await one.store.calls()
    assert card.result is not None
    assert card.result.status is Status.CANCELED


async def test_a_report_that_comes_five_times_counts_once(place: Place) -> None:
    async with place.device("shed", TOOLS) as shed, place.hub() as one:
        shed.repeat = 5
        results = [await one.call("gpio_write", pin=pin, value=1) for pin in range(5)]

    assert [result.text for result in results] == [f"{pin}=1" for pin in range(5)]
    assert (await one.events("late_result"), await one.events("report_refused")) == ([], [])


WRONG = {
    "stale_epoch": lambda report: replace(report, epoch=report.epoch + 1),
    "digest_mismatch": lambda report: replace(report, digest="0" * 64),
}


@pytest.mark.parametrize("code", WRONG)
async def test_T195_a_report_about_something_else_is_refused_and_on_record(here: Place, code: str) -> None:
    async with here.device("shed", TOOLS) as shed, here.hub() as one:
        shed.change = lambda message: WRONG[code](message) if isinstance(message, EdgeReport) else message
        result = await one.call("gpio_write", pin=1, value=1)
        await eventually(lambda: one.events("report_refused"))
        refused = await one.events("report_refused")

    assert code_of(result) is Code.OUTCOME_UNKNOWN
    assert refused == [code]


async def test_T195_a_device_cannot_report_the_call_of_another(here: Place) -> None:
    async with here.device("shed", TOOLS) as shed, here.device("thief", ()) as thief, here.hub() as one:
        shed.mute = True
        running = asyncio.create_task(one.call("gpio_write", pin=1, value=1))
        await until(lambda: shed.commands)
        forged = report_to(shed.commands[0], {"status": "success", "result": "stolen"}, 0.0)
        await thief.say(replace(forged, agent_id="thief"))
        result = await running
        await eventually(lambda: one.events("report_refused"))
        refused = await one.events("report_refused")

    assert code_of(result) is Code.OUTCOME_UNKNOWN
    assert refused == ["wrong_agent"]


async def test_T195_control_the_report_of_the_right_device_counts(here: Place) -> None:
    async with here.device("shed", TOOLS), here.device("thief", ()), here.hub() as one:
        assert (await one.call("gpio_write", pin=1, value=1)).text == "1=1"


async def test_a_call_whose_command_was_lost_is_sent_again_when_the_device_comes_back(here: Place) -> None:
    async with here.hub(limits=EdgeLimits(margin_s=BOUND_S)) as one:
        async with here.device("shed", TOOLS) as deaf:
            deaf.deaf = True
            running = asyncio.create_task(one.call("gpio_write", pin=1, value=1))
            await until(lambda: deaf.commands)
        async with here.device("shed", TOOLS) as shed:
            result = await running

    assert (result.text, sum(shed.runs.values())) == ("1=1", 1)


async def test_a_turn_whose_process_died_goes_on_elsewhere_and_the_device_repeats_its_report(
    here: Place, tmp_path: Path
) -> None:
    """The call may have taken effect. It is sent again under its record, and does not run again."""
    async with here.device("shed", TOOLS) as shed:
        first = await SqliteStore.at(tmp_path)
        async with here.hub(store=first) as dead:
            shed.mute = True
            asking = asyncio.create_task(dead.agent(call("gpio_write", pin=4, value=1), suspends=True).ask("Set it"))
            await until(lambda: shed.kept)
            [turn] = await first.turns()
            await die(asking, first)
        shed.mute = False
        async with await SqliteStore.at(tmp_path) as second, here.hub(store=second) as other:
            answer = await other.agent("Done.").resume(turn.id)
            [card] = await second.calls()

    assert answer.text == "Done."
    assert card.result is not None
    assert (card.result.text, sum(shed.runs.values())) == ("4=1", 1)
    assert [one.attempt for one in shed.commands if one.kind is CommandKind.TOOL] == [1, 2]


@pytest.mark.feature("F178", "F180")
async def test_calls_of_a_conversation_go_to_one_device_and_one_that_leaves_is_replaced(here: Place) -> None:
    async with AsyncExitStack() as devices, here.hub() as one:
        pis = {name: await devices.enter_async_context(here.device(name, TOOLS)) for name in ("a", "b", "c")}
        await until(lambda: all(presence_of(one, name) == "online" for name in pis))
        await until(lambda: len(one.client.registry.with_tool("hang")) == 3)
        agent = one.agent(*[call("gpio_write", pin=number, value=1) for number in range(4)], "Done.", "Done.")
        await agent.ask("Set them", thread="garden")
        [chosen] = [name for name, pi in pis.items() if pi.runs]
        await pis[chosen].say_state(AgentState.DRAINING)
        await until(lambda: presence_of(one, chosen) == "draining")
        await one.agent(call("gpio_write", pin=9, value=1), "Done.").ask("And this", thread="garden")

    assert sum(pis[chosen].runs.values()) == 4
    assert sum(sum(pi.runs.values()) for name, pi in pis.items() if name != chosen) == 1


async def test_a_device_that_is_named_gets_the_call_and_an_unknown_one_is_said(here: Place) -> None:
    async with here.device("kitchen", TOOLS) as kitchen, here.device("cellar", TOOLS), here.hub() as one:
        results = [await one.call("gpio_write", pin=1, value=1, agent=name) for name in ("kitchen", "kitchn", "attic")]

    assert results[0].text == "1=1"
    assert dict(kitchen.commands[0].payload["parameters"]) == {"pin": 1, "value": 1}, (
        "the device sees its own arguments"
    )
    assert "no device 'kitchn' has the tool 'gpio_write'; did you mean kitchen?" in results[1].text
    assert code_of(results[2]) is Code.NOT_FOUND


async def test_a_broker_that_comes_back_brings_the_calls_to_their_ends(tmp_path: Path) -> None:
    with running("mosquitto", tmp_path) as broker:
        place = Place(broker)
        async with place.device("shed", TOOLS) as shed, place.hub(limits=EdgeLimits(margin_s=BOUND_S)) as one:
            shed.mute = True
            calls = [asyncio.create_task(one.call("gpio_write", pin=pin, value=1)) for pin in range(5)]
            await until(lambda: len(shed.kept) == 5)
            broker.kill()
            shed.mute = False
            broker.start()
            results = await asyncio.gather(*calls)

    assert [result.text for result in results] == [f"{pin}=1" for pin in range(5)]
    assert set(shed.runs.values()) == {1}


@pytest.mark.feature("F142")
async def test_output_and_progress_of_a_device_arrive_while_it_works(place: Place) -> None:
    @tool(effect=Effect.PURE)
    async def build(context: Context) -> str:
        """Build."""
        context.progress("half", 0.5)
        context.output("compiling\n")
        context.output("careful\n", "stderr")
        await asyncio.sleep(0.05)
        return "built"

    events: list[Event] = []
    async with place.device("shed", (build,)), place.hub() as one:
        await one.agent(call("build"), "Done.").ask("Build", on_event=events.append)

    assert [(event.message, event.fraction) for event in events if isinstance(event, CallProgress)] == [("half", 0.5)]
    told = [(event.text, event.stream) for event in events if isinstance(event, OutputDelta)]
    assert told == [("compiling\n", "stdout"), ("careful\n", "stderr")]
