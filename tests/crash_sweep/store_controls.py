"""Defences of stores that outlive their process, each taken away: a sweep that does not notice that shows nothing.

As in `tests/simulation/planted.py`, each is a patch of one thing of the product.
"""

from collections.abc import Callable
from contextlib import ExitStack
from unittest.mock import patch

from toolwire.record import changes, pg_connection
from toolwire.record.writer import Writer

Plant = Callable[[ExitStack], None]


def write_over_what_has_the_same_id(stack: ExitStack) -> None:
    """The tables take a second turn with an id in place of the first."""
    anew = ("epoch", "owner", "state", "opening", "history", "history_upto", "waits")
    sets = ", ".join([f"{name} = excluded.{name}" for name in anew])
    over = f"{changes.BEGIN_TURN} ON CONFLICT (id, project) DO UPDATE SET {sets}, ending = NULL, ended = NULL"
    stack.enter_context(patch.object(changes, "BEGIN_TURN", over))


def confirm_before_it_is_written(stack: ExitStack) -> None:
    """The server says that it has kept something, and writes it to its log a moment later."""
    stack.enter_context(patch.dict(pg_connection._ISOLATED, synchronous_commit="off"))


def give_up_what_was_not_kept(stack: ExitStack) -> None:
    """A result that could not be kept, or a turn that could not be released, is not tried again."""
    stack.enter_context(patch.object(Writer, "retry_later", lambda *_: None))


STORE_PLANTED: dict[str, Plant] = {
    one.__name__: one
    for one in (write_over_what_has_the_same_id, confirm_before_it_is_written, give_up_what_was_not_kept)
}
