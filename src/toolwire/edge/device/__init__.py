"""The process on a device: `toolwire edge run`.

A command comes in (`agent`), is opened and judged by the device's own keys, clock and journal, and its call runs in a
pool (`calls`) through the same decision and the same executors as everywhere, under the grant of the device's own
configuration. Whatever an orchestrator says, it cannot widen that grant.

The journal makes sending a command again harmless. A call is written down before it begins and again when it has ended,
so it runs once however often its command comes; its report is kept until the broker has it. A call that a dead process
had begun runs again only where that does no harm, and otherwise its outcome is reported as unknown.
"""
