"""The one thread that reads, on a connection of its own: it never waits for the writer, nor the writer for it.

Two things spare it work. Questions of one kind that are asked while another one is being answered are put together into
one. And threads that were read lately are remembered, so that a long conversation is not read whole for each of its
turns: what was said in an ended turn never changes, so a thread that was read up to some turn is read on from there, as
long as no turn before it has been pruned. Interrupted turns may still change, so they are read each time.
"""

import asyncio
import contextlib
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, Generic, ParamSpec, TypeVar

from msgspec import Struct

from toolwire.errors import StoreUnavailable
from toolwire.protocol.chat import Message
from toolwire.record import reads
from toolwire.record.faults import to_store_error
from toolwire.record.reads import AliveOn, EndedTurn
from toolwire.record.rows import LeftTurn
from toolwire.record.weights import weigh_message

P = ParamSpec("P")
T = TypeVar("T")
Key = TypeVar("Key")
Found = TypeVar("Found")

_MAX_THREADS = 64
_MAX_BYTES = 16 << 20


class Reader:
    """Answers questions from one consistent view of the store each."""

    def __init__(self, path: Path | str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, "toolwire-store-reader")

    async def read(
        self, question: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Ask away from the event loop. Raises StoreError, also for kept data that cannot be understood."""
        loop = asyncio.get_running_loop()
        try:
            asked = loop.run_in_executor(self._thread, lambda: self._ask(lambda c: question(c, *args, **kwargs)))
        except RuntimeError:  # how a pool of threads says that it was shut down
            raise StoreUnavailable(f"{self._path} was closed; open the store again") from None
        return await asked

    def interrupt(self) -> None:
        """Let the question that is being answered fail. Over HTTP it goes on until it is answered."""
        if isinstance(self._connection, sqlite3.Connection):
            self._connection.interrupt()

    def close(self) -> None:
        """Finish what was asked, then stop. Blocks; harmless when called twice."""
        self._thread.shutdown()
        self._drop_connection()

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self._connection = connection = self._connection or self._connect()
            connection.execute("BEGIN")
            try:
                return question(connection)
            finally:
                connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._drop_connection()
            raise to_store_error(error, self._path) from error
        except (LookupError, TypeError, ValueError) as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> StoreUnavailable:
        """What is said of kept data that cannot be understood."""
        return StoreUnavailable(
            f"{self._path} holds something that this version cannot read ({error!r:.200}); "
            "upgrade toolwire, or restore a copy"
        )

    def _drop_connection(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


class BatchedReads(Generic[Key, Found]):
    """Looks things up by their keys. One question at a time is on its way; those that come meanwhile go together.

    Where an answer comes so soon that hardly anything does meanwhile, a question follows one that several waited for
    after `pause_s`.
    """

    def __init__(self, ask: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Found]]], *, pause_s: float = 0.0) -> None:
        self._ask = ask
        self._pause_s = pause_s
        self._asks_at = 0.0
        self._is_busy = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Key, list[asyncio.Future[Found | None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def get(self, key: Key) -> Found | None:
        """What is kept under a key. Raises as the question does."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._task is not None and not self._task.done():  # another loop is at it
                return (await self._ask([key])).get(key)
            self._loop, self._waiting = loop, {}
        answer: asyncio.Future[Found | None] = loop.create_future()
        self._waiting.setdefault(key, []).append(answer)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="toolwire-batched-reads")
        return await answer

    async def _run(self) -> None:
        while self._waiting:
            await self._gather()
            waiting, self._waiting = self._waiting, {}
            self._is_busy = len(waiting) > 1
            try:
                found = await self._ask(list(waiting))
            except Exception as error:
                for answers in waiting.values():
                    _tell(answers, error)
            except BaseException:
                for answers in (*waiting.values(), *self._waiting.values()):
                    for answer in answers:
                        answer.cancel()
                raise
            else:
                for key, answers in waiting.items():
                    for answer in answers:
                        if not answer.done():
                            answer.set_result(found.get(key))

    async def _gather(self) -> None:
        """Let more come, if a question for several was asked just now."""
        now = asyncio.get_running_loop().time()
        if self._is_busy and now < self._asks_at <= now + self._pause_s:  # it may be the time of another loop
            await asyncio.sleep(self._asks_at - now)
            now = self._asks_at
        self._asks_at = now + self._pause_s


def _tell(answers: Sequence["asyncio.Future[Found | None]"], error: Exception) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)


class ReadThread(Struct, frozen=True):
    """What the next turn of a project's thread is told. `upto` is the number of the newest one that has ended."""

    said: tuple[Message, ...] = ()
    ended: tuple[EndedTurn, ...] = ()
    left: tuple[LeftTurn, ...] = ()
    weight: int = 0

    @property
    def upto(self) -> int:
        return self.ended[-1].ended if self.ended else 0


class ThreadCache:
    """The newest few threads that were read, up to a total weight.

    Changed by the one thread that reads; the loop only looks.
    """

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
