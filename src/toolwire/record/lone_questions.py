"""Questions of one statement whose answer is bounded: asked on a server, they need no transaction."""

from toolwire.record import dispatch_rows, reads

LONE_QUESTIONS = frozenset(
    (reads.CALLS_BY_ID, dispatch_rows.OF_CARDS, *reads.CALLS_OF_TURN, *reads.WHOLE_TURN, *reads.APPROVALS_OF_TURN)
)
