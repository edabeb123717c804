"""The view of a context that hints ask for: include, then exclude, then transforms."""

import json
from collections.abc import Mapping
from typing import Any

from toolwire.breadcrumbs.rules.hints.filters import keep_only, leave_out
from toolwire.breadcrumbs.rules.hints.reading import HintMode, Hints
from toolwire.breadcrumbs.rules.hints.transforms import LONGEST_TEXT, apply_transform
from toolwire.errors import InvalidRecord


def filter_context(context: Mapping[str, Any], hints: Hints) -> Any:
    """What include and exclude leave of a context. Raises `InvalidRecord`."""
    try:
        kept = context if hints.include is None else keep_only(context, hints.include)
        return leave_out(kept, hints.exclude) if hints.exclude else kept
    except RecursionError:
        raise InvalidRecord("the context is nested too deeply for llm_hints") from None


def transform_context(filtered: Any, hints: Hints) -> Any:
    """What a model is shown of a context that was filtered. Raises `InvalidRecord`."""
    if not hints.transforms:
        return filtered
    made = {transform.name: apply_transform(transform, filtered) for transform in hints.transforms}
    try:
        length = len(json.dumps(made, ensure_ascii=False))
    except (RecursionError, ValueError, TypeError):
        raise InvalidRecord("what the transforms of llm_hints make is not JSON") from None
    if length > LONGEST_TEXT:
        raise InvalidRecord(f"the transforms of llm_hints make more than {LONGEST_TEXT} characters")
    merges = hints.mode is HintMode.MERGE and isinstance(filtered, Mapping)
    return {**filtered, **made} if merges else made
