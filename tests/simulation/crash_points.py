"""The crash points of the protocol that a simulated process, store or bus can be made to fail at, each by name.

A point is an operation of the store or the bus (or the model's answer), whether it is done by then, and what goes wrong
there: most often the process dies, without hearing of it. What must be true afterwards is what `invariants` checks
after every run: each call has one result, an unsafe one took effect at most once, and every turn has ended. Each point
names the defence of `planted` without which that is not so.

`tests/crash_points.py` lists all points of the protocol, also those that are hit elsewhere.
"""

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong at a point."""

    KILL = "kill"
    FAIL = "fail"
    """The store or the bus is not heard of: before, it has done nothing; after, it has."""
    PAUSE = "pause"
    LOSE = "lose"
    """The broker confirms a message, and loses it."""
    REPEAT = "repeat"
    DELAY = "delay"
    WIPE = "wipe"
    """The broker loses all that it has, and the process dies."""
    BROKER_AWAY = "broker away"
    STORE_DIES = "store dies"
    """The server of the store dies, with the operation under way or just done. A simulated store has no server."""


DEADLY = (Fault.KILL, Fault.WIPE)


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A `fault` comes over processes of a `role` `when` they do an `operation`: the first `times` that it happens.

    Only calls of one `part` of the protocol are made meanwhile; see `workload.MIXTURES`. `control` is the defence that
    is missed here, as seeds from `first` on show. Some points need another fault `besides`.
    """

    role: str
    operation: str
    when: str
    control: str = ""
    first: int = 0
    times: int = 2
    part: str = "workers"
    fault: Fault = Fault.KILL
    besides: "CrashPoint | None" = None

    def is_hit(self, process: str, operation: str, when: str) -> bool:
        return (operation, when) == (self.operation, self.when) and process.startswith(self.role)

    @property
    def all_of_it(self) -> "tuple[CrashPoint, ...]":
        return (self,) if self.besides is None else (self, self.besides)


_P = CrashPoint
_SENT, _REPORTED = ("relay", "publish", "before"), ("service", "publish", "before")

CRASH_POINTS = {
    "C2 after the model answered, before its reply is kept": _P(
        "runner", "append_reply", "before", "run_before_the_reply_is_kept", first=12, times=8
    ),
    "C4 a turn is begun, and its client does not hear of it": _P("client", "begin", "after", "begin_again"),
    "C6 a reply is kept, and its runner does not hear of it": _P(
        "runner", "append_reply", "after", "write_the_reply_again", first=3, fault=Fault.FAIL
    ),
    "C6 a reply is not kept, since the store restarts": _P(
        "runner", "append_reply", "before", "go_on_without_the_reply", first=24, fault=Fault.FAIL
    ),
    "C7 while a call awaits approval": _P("runner", "request_approval", "after", "leave_turns_of_the_dead", first=3),
    "C9 the call is to be sent, and is not published yet": _P(
        "runner", "dispatch", "after", "leave_turns_of_the_dead", first=1
    ),
    "C9 the relay took what is due, and publishes nothing": _P(
        "relay", "take_due", "after", "never_send_again", first=1
    ),
    "C10 published, and the relay does not know": _P("relay", "publish", "after", "never_send_again", first=1),
    "C11 published, and the relay hears that it may not be": _P(
        "relay", "publish", "after", "trust_that_commands_come_once", first=8, fault=Fault.FAIL
    ),
    "C12 the broker confirms a command, and loses it": _P(*_SENT, "never_send_again", first=1, fault=Fault.LOSE),
    "C12 the broker loses all it has while a command is received": _P(
        "worker", "dispatched", "before", "never_send_again", first=1, fault=Fault.WIPE
    ),
    "C13 the broker is away for long": _P(
        "runner", "dispatch", "after", "drop_what_cannot_be_sent", first=1, times=1, fault=Fault.BROKER_AWAY
    ),
    "C15 the broker confirms command after command, and loses them": _P(
        *_SENT, "never_send_again", first=1, times=4, fault=Fault.LOSE
    ),
    "C16 received, before the claim": _P("worker", "dispatched", "before", "acknowledge_when_received", first=1),
    "C17 the same command reaches several workers": _P(*_SENT, "claim_while_held", first=1, fault=Fault.REPEAT),
    "C16 a handed-over command is taken, before the claim": _P(
        "worker", "dispatched", "before", "rely_on_handoffs", first=2
    ),
    "C17 a handed-over command reaches several workers": _P(
        "runner", "hand over", "before", "claim_while_held", first=2, fault=Fault.REPEAT
    ),
    "C17 a handed-over command is taken, and its relay does not hear of it": _P(
        "runner", "hand over", "after", "claim_while_held", first=2, fault=Fault.FAIL
    ),
    "C19 a command comes when its turn was taken over": _P(
        "runner", "dispatch", "after", "run_commands_of_older_epochs", besides=_P(*_SENT, times=8, fault=Fault.DELAY)
    ),
    "C21 claimed, before the tool begins": _P("worker", "claim", "after", "acknowledge_when_received", first=1),
    "C23 during the run": _P("worker", "renew", "before", "send_again_what_another_began", first=22),
    "C25 a worker is paused past its lease, with a result": _P(
        "worker", "close", "before", "close_twice", first=1, fault=Fault.PAUSE
    ),
    "C26 the effect is done, and its result not kept": _P("worker", "close", "before", "repeat_unsafe_calls", first=1),
    "C27 the output is kept, and its result is not": _P("worker", "keep", "after", "repeat_unsafe_calls", first=1),
    "C27 the output is not kept yet": _P("worker", "keep", "before", "name_outputs_before_they_are_kept", first=1),
    "C29 the result is kept, and its worker does not hear of it": _P(
        "worker", "close", "after", "run_what_has_ended", first=1
    ),
    "C30 the result is kept, before the broker hears of it": _P(
        "worker", "ack", "before", "run_what_has_ended", first=1
    ),
    "C31 a report comes after its call has ended": _P(
        *_REPORTED, "forget_late_reports", first=9, part="service", fault=Fault.DELAY
    ),
    "C32 the result is kept, before the turn is woken": _P(
        "worker", "publish", "before", "look_only_when_woken", first=2
    ),
    "C33 a report comes five times": _P(*_REPORTED, "run_what_has_ended", first=1, part="service", fault=Fault.REPEAT),
    "C36 the wakeup is lost": _P(
        "worker", "publish", "before", "look_only_when_woken", first=1, times=4, fault=Fault.LOSE
    ),
    "C37 two runners take up the same turn": _P(
        "runner", "resume", "before", "resume_while_owned", first=22, fault=Fault.PAUSE
    ),
    "C37 a runner took up a turn, and sleeps until another has": _P(
        "runner", "resume", "after", "change_turns_of_others", first=1, fault=Fault.PAUSE
    ),
    "C38 the turn is taken up, before the model is asked": _P(
        "runner", "resume", "after", "leave_turns_of_the_dead", first=1
    ),
    "C39 while the model answers": _P("runner", "ask model", "before", "leave_turns_of_the_dead", first=1),
    "C40 two runners have an answer of the model": _P(
        "runner", "append_reply", "before", "change_turns_of_others", first=1, fault=Fault.PAUSE
    ),
    "C41 the turn has ended, and its process does not hear of it": _P(
        "runner", "end", "after", "leave_turns_of_the_dead", first=3
    ),
    "a detached call is sent, and its turn does not know": _P(
        "runner", "dispatch", "after", "detach_before_it_is_sent", part="detached"
    ),
    "a call runs on its own, and its turn does not know": _P(
        "runner", "detach", "after", "settle_nothing_detached", first=1, part="detached"
    ),
    "a call is claimed for its service, which has no card yet": _P(
        "service", "claim", "after", "forget_late_reports", first=9, part="service"
    ),
    "the service's card is kept, and it does not report": _P(
        "service", "keep_card", "after", "give_a_card_without_a_claim", first=7, times=4, part="service"
    ),
    "a report is received, before the claim": _P(
        "receiver", "result_card", "after", "give_a_card_without_a_claim", first=7, part="service"
    ),
    "a report's result is kept, and the bus does not hear of it": _P(
        "receiver", "close", "after", "give_a_card_without_a_claim", first=5, part="service"
    ),
    "a task has its share, and is not kept": _P(
        "runner", "reserve_share", "after", "leave_turns_of_the_dead", part="tasks"
    ),
    "one task is kept, and the others are not": _P(
        "runner", "begin", "after", "begin_tasks_anew", first=3, part="tasks"
    ),
    "the tasks are kept, and their turn does not wait": _P(
        "runner", "release", "before", "leave_turns_of_the_dead", part="tasks"
    ),
    "C45 everything at once": _P("", "claim", "after", "acknowledge_when_received", first=1, times=1),
}

NOWHERE = CrashPoint("no process", "nothing", "never")
"""Nothing goes wrong: a run in which a defence that was taken away is not missed."""
