"""One conversation that shows everything a dialect must write, shared by the outbound tests."""

from toolwire.protocol.calls import Image, Text, ToolCall, ToolResult
from toolwire.protocol.chat import Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Tool

THERMOMETER = Tool(
    "read_temperature",
    "Read the temperature of a room in °C.",
    {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]},
)
CAMERA = Tool("take_picture", "Take a picture.")

IN_KITCHEN = ToolCall("read_temperature", {"room": "kitchen"}, id="018f-1", alias="call_a")
IN_ATTIC = ToolCall("read_temperature", {"room": "attic"}, id="018f-2", alias="call_b")
PICTURE = ToolCall("take_picture", {}, id="018f-3", alias="call_a")

CONVERSATION = Request(
    messages=(
        UserMessage("How warm is it in the kitchen and in the attic?"),
        Reply(
            content="I will look.",
            calls=(IN_KITCHEN, IN_ATTIC),
            carry={
                "provider": "anthropic",
                "items": [{"type": "thinking", "thinking": "Two rooms.", "signature": "c2lnbmVk"}],
            },
        ),
        ResultsMessage(
            (
                ToolResult("018f-1", "read_temperature", Status.SUCCESS, (Text("21.5"),)),
                ToolResult.failed(IN_ATTIC, Code.NOT_FOUND, "there is no sensor in 'attic'; rooms: kitchen"),
            )
        ),
        Note("One step is left."),
        Reply(calls=(PICTURE,)),
        ResultsMessage((ToolResult("018f-3", "take_picture", Status.SUCCESS, (Text("done"), Image("iVBORw0KGgo="))),)),
        Reply(content="21.5 °C in the kitchen; the attic has no sensor."),
        UserMessage("Thanks. Summarise."),
    ),
    tools=(THERMOMETER, CAMERA),
    system="You look after a house.",
    conversation="house",
    tools_off=True,
    max_tokens=256,
    temperature=0.0,
)
