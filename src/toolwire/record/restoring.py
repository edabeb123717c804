"""A store that was restored from a backup: what ran after the backup must not write into it.

The turns that had not ended go on from where the backup knows them. Processes of the time after it may still be at work
on later epochs of the same turns, and their commands may still be with a broker. So every open turn gets an epoch that
none of them can have reached, and calls that were on their way are sent anew under that. The calls of later steps have
ids that no call of the lost time had: tools and services may know those.

Changes of records go on with numbers that no follower has seen: a stream that is resumed behind the backup leaves
nothing out, and no receiver of webhooks takes a new delivery for one that it had.
"""

from toolwire.protocol.records import AuditRow
from toolwire.protocol.turns import RESTORED_EPOCHS
from toolwire.record import record_rows
from toolwire.record.rows import audit_rows
from toolwire.record.transaction import Transaction

_TURNS = "UPDATE turns SET epoch = epoch + ?, owner = NULL, state = 'interrupted' WHERE state <> 'ended'"
_DISPATCHES = "UPDATE dispatches SET epoch = epoch + ?, due = ?"


def fence(tx: Transaction, at: float) -> int:
    """Raise the epochs of all turns that have not ended; gives how many these are."""
    tx.flush()
    turns = tx.connection.execute(_TURNS, (RESTORED_EPOCHS,)).rowcount
    tx.connection.execute(_DISPATCHES, (RESTORED_EPOCHS, at))
    record_rows.skip_numbers(tx, RESTORED_EPOCHS, at)
    for known in (tx.known.turns, tx.known.here, tx.known.calls):
        known.clear()
    tx.audit.extend(
        audit_rows([AuditRow(at, "restored", detail={"turns": turns, "epochs_raised_by": RESTORED_EPOCHS})])
    )
    return turns
