"""The whole fleet in one thread, in virtual time, with faults drawn from a seed.

Every process is made of the product's own parts: `TurnRunner`, `BusDispatcher`, `Relay`, `ToolWorker`, `hear_wakeups`,
`ReportReceiver`, the routes for cards, and the tools by which agents set others to work.
What lies between them is simulated: an event loop whose clock jumps, the store's only copy in memory, and a bus that
loses, doubles, delays and reorders. A process can be killed between any two of its steps, or paused; the same seed
gives the same run. `python -m tests.simulation --seed N` shows one.

    virtual_loop  time that jumps, and processes that are killed or paused between two steps
    shared_store  the one truth, and what each process sees of it: delays, outages, leases
    lossy_bus     the bus
    workload      turns, tools of all effect classes, and an outside ledger of what they really did
    foreign_service  a tool service that reports over the bus, and sees no store
    delegation    tools that set other agents to work, as every process has them
    fleet         puts processes together, and starts them again
    faults        when what goes wrong, by the seed
    crash_points  the points of the protocol at which a process is killed, by name
    invariants    what must be true, during a run and at its end
    planted       defences taken away, each of which has to be noticed
"""
