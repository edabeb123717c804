"""The crash points of the protocol that a simulated process can be killed at, each by name.

A point is an operation of the store or the bus (or the model's answer), and whether the process dies before it is done
or after, without hearing of it. What must be true afterwards is what `invariants` checks after every run: each call has
one result, an unsafe one took effect at most once, and every turn has ended.

Not here, since no process dies at them: C6, C11, C12, C13, C15, C17, C19, C25, C31, C33, C36 and C37 come about by the
faults that each seed draws (lost answers, outages, wiped, dropped and doubled messages, pauses, several runners).

Not simulated at all: C1, C8, C14, C18, C20, C34, C35, C40, C43 and C48 are about requests, input or decisions, not
deaths. C3, C5, C27, C28, C44, C46 and C47 are about disks and transactions, which the store in memory does not
have; C24 is about sandboxes; C42 is in `tests/fleet/test_clocks.py`. C22 is the kill of C21 here: the claim says
`started`.
"""

from toolwire.protocol.values import dataclass


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Processes of a `role` die `when` they do an `operation`: the first `times` that it happens.

    Only calls of one `part` of the protocol are made meanwhile; see `workload.MIXTURES`.
    """

    role: str
    operation: str
    when: str
    times: int = 2
    part: str = "workers"

    def is_hit(self, process: str, operation: str, when: str) -> bool:
        return (operation, when) == (self.operation, self.when) and process.startswith(self.role)


CRASH_POINTS = {
    "C2 after the model answered, before its reply is kept": CrashPoint("runner", "append_reply", "before"),
    "C4 a turn is begun, and its client does not hear of it": CrashPoint("client", "begin", "after"),
    "C7 while a call awaits approval": CrashPoint("runner", "request_approval", "after"),
    "C9 the call is to be sent, and is not published yet": CrashPoint("runner", "dispatch", "after"),
    "C9 the relay took what is due, and publishes nothing": CrashPoint("relay", "take_due", "after"),
    "C10 published, and the relay does not know": CrashPoint("relay", "publish", "after"),
    "C16 received, before the claim": CrashPoint("worker", "dispatched", "before"),
    "C21 claimed, before the tool begins": CrashPoint("worker", "claim", "after"),
    "C23 during the run": CrashPoint("worker", "renew", "before"),
    "C26 the effect is done, and its result not kept": CrashPoint("worker", "close", "before"),
    "C29 the result is kept, and its worker does not hear of it": CrashPoint("worker", "close", "after"),
    "C30 the result is kept, before the broker hears of it": CrashPoint("worker", "ack", "before"),
    "C32 the result is kept, before the turn is woken": CrashPoint("worker", "publish", "before"),
    "C38 the turn is taken up, before the model is asked": CrashPoint("runner", "resume", "after"),
    "C39 while the model answers": CrashPoint("runner", "ask model", "before"),
    "C41 the turn has ended, and its process does not hear of it": CrashPoint("runner", "end", "after"),
    "a detached call is sent, and its turn does not know": CrashPoint("runner", "dispatch", "after", part="detached"),
    "a call runs on its own, and its turn does not know": CrashPoint("runner", "detach", "after", part="detached"),
    "a call is claimed for its service, which has no card yet": CrashPoint("service", "claim", "after", part="service"),
    "the service's card is kept, and it does not report": CrashPoint("service", "keep_card", "after", 4, "service"),
    "a report is received, before the claim": CrashPoint("receiver", "result_card", "after", part="service"),
    "a report's result is kept, and the bus does not hear of it": CrashPoint(
        "receiver", "close", "after", part="service"
    ),
    "a task has its share, and is not kept": CrashPoint("runner", "reserve_share", "after", part="tasks"),
    "one task is kept, and the others are not": CrashPoint("runner", "begin", "after", part="tasks"),
    "the tasks are kept, and their turn does not wait": CrashPoint("runner", "release", "before", part="tasks"),
    "C45 everything at once": CrashPoint("", "claim", "after", times=1),
}
