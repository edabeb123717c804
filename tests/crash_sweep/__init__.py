"""The crash points of the protocol, struck in real processes, over real brokers.

What `tests/simulation` does in one thread and in virtual time is done here by processes that share a store in SQLite
or PostgreSQL and are killed with `kill -9`: the same points, the same plans of turns and calls, the same tools and the
same judgement. A process comes to its point in the store or the bus that it is given, which tell of each operation
before and after it; nothing in the product knows of that. `python -m tests.crash_sweep --over nats` runs it.

    striking         what goes wrong in a process, at which operation
    fleet            a process of the fleet, put together from the product's parts
    devices          the points of calls on a device; a process with the tools, and one that calls them over MQTT
    device_controls  defences of these calls, each taken away
    server_controls  defences of stores and brokers that outlive a process
    controls         which defence is missed at which point, and a run that shows it
    judging          waits until all has ended, and says what is wrong
    runs             one run: starts processes again, and the broker and the server of the store
"""
