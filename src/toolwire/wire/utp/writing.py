"""Values as JSON bytes."""

from collections.abc import Mapping
from typing import Any

import orjson


def json_bytes(value: Any) -> bytes:
    """Raises TypeError, which says what is not JSON."""
    return orjson.dumps(value, default=_as_dict, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def _as_dict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
