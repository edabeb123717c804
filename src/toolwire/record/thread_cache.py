"""Threads that were read lately, so that a long conversation is not read whole for each of its turns.

What was said in an ended turn never changes. A thread that was read up to some turn is therefore read on from there, as
long as no turn before it has been pruned. Interrupted turns may still change, so they are read each time. The newest
few threads are remembered, up to a total weight.
"""

import sqlite3
from collections import OrderedDict

from toolwire.protocol.chat import Message
from toolwire.protocol.values import dataclass
from toolwire.record import reads
from toolwire.record.reads import AliveOn, EndedTurn
from toolwire.record.rows import LeftTurn
from toolwire.record.weights import weigh_message

_MAX_THREADS = 64
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ReadThread:
    """What the next turn of a project's thread is told. `upto` is the number of the newest one that has ended."""

    said: tuple[Message, ...] = ()
    ended: tuple[EndedTurn, ...] = ()
    left: tuple[LeftTurn, ...] = ()
    weight: int = 0

    @property
    def upto(self) -> int:
        return self.ended[-1].ended if self.ended else 0


class ThreadCache:
    """Changed by the one thread that reads; the loop only looks."""

    def __init__(self) -> None:
        self._threads: OrderedDict[tuple[str, str], ReadThread] = OrderedDict()
        self._weight = 0

    def read(self, connection: sqlite3.Connection, project: str, name: str, alive_on: AliveOn) -> ReadThread:
        """Everything said in the turns of a project's thread that no process runs."""
        if not name:
            return ReadThread()
        known = self._threads.pop((project, name), ReadThread())
        self._weight -= known.weight
        if reads.turns_until(connection, project, name, known.upto) != len(known.ended):
            known = ReadThread()
        more = reads.ended_turns(connection, project, name, known.upto)
        left = reads.left_turns(connection, project, name, alive_on)
        if more or left or known.left:
            ended = (*known.ended, *more)
            weight = known.weight + sum(weigh_message(message) for turn in more for message in turn.said)
            known = ReadThread(reads.conversation_messages(ended, left), ended, left, weight)
        self._remember((project, name), known)
        return known

    def read_as(self, project: str, name: str, history: tuple[Message, ...]) -> ReadThread | None:
        """A thread that was read as exactly this history; None if it was not."""
        known = self._threads.get((project, name))
        return known if known is not None and known.said == history else None

    def _remember(self, key: tuple[str, str], read: ReadThread) -> None:
        self._threads[key] = read
        self._weight += read.weight
        while len(self._threads) > 1 and (len(self._threads) > _MAX_THREADS or self._weight > _MAX_BYTES):
            _, gone = self._threads.popitem(last=False)
            self._weight -= gone.weight
