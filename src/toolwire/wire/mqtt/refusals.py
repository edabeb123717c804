"""Why a message is not accepted, as a value that can be reported and audited."""

from enum import StrEnum

from msgspec import Struct

from toolwire.protocol.outcomes import Code


class RefusalCode(StrEnum):
    """Which rule a message breaks."""

    BAD_TOPIC = "bad_topic"
    TOO_LARGE = "too_large"
    NOT_JSON = "not_json"
    MISSING_FIELD = "missing_field"
    INVALID_FIELD = "invalid_field"
    UNKNOWN_COMMAND = "unknown_command"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    WRONG_AGENT = "wrong_agent"
    RETAINED = "retained"
    STALE = "stale"
    EXPIRED = "expired"
    STALE_EPOCH = "stale_epoch"
    DIGEST_MISMATCH = "digest_mismatch"
    NOT_ALLOWED = "not_allowed"
    BUSY = "busy"


_CODES = {
    RefusalCode.UNKNOWN_COMMAND: Code.NOT_FOUND,
    RefusalCode.EXPIRED: Code.TIMEOUT,
    RefusalCode.BUSY: Code.UNAVAILABLE,
} | dict.fromkeys(
    (
        RefusalCode.UNSIGNED, RefusalCode.UNKNOWN_KEY, RefusalCode.BAD_SIGNATURE, RefusalCode.WRONG_AGENT,
        RefusalCode.RETAINED, RefusalCode.STALE, RefusalCode.STALE_EPOCH, RefusalCode.NOT_ALLOWED,
    ),
    Code.PERMISSION_DENIED,
)  # fmt: skip


class RefusedMessage(Struct, frozen=True):
    """One broken rule, a sentence about it, and what could be read of whose message it was.

    `proven` says that a known key signed the message: only then is what it says about itself known to be true.
    """

    code: RefusalCode
    message: str
    field: str = ""
    request_id: str = ""
    agent_id: str = ""
    proven: bool = False

    @property
    def result_code(self) -> Code:
        """What a result says about it."""
        return _CODES.get(self.code, Code.INVALID_PARAMS)
