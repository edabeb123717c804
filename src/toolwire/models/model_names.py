"""Model strings: `provider:model`."""

from toolwire.errors import SettingsError


def split_name(name: str) -> tuple[str, str]:
    """`provider:model` or `provider/model` as its two halves. Raises SettingsError when it is neither."""
    ends = [end for end in (name.find(":"), name.find("/")) if end > 0]
    if not ends or not name[min(ends) + 1 :].strip():
        raise SettingsError(f"a model is named provider:model, such as openai:gpt-4o-mini, not {name[:80]!r}")
    return name[: min(ends)].strip().lower(), name[min(ends) + 1 :].strip()
