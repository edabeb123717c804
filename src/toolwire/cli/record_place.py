"""Where the record may lie: no tool may be able to change what people allowed, or what was done."""

from pathlib import Path

from toolwire.errors import SettingsError
from toolwire.protocol.obeyed import OWN_STATE
from toolwire.protocol.tools import Grant

_CHANGES_FILES = frozenset({"shell", "git", "file_write"})


def require_record_apart(home: Path, grant: Grant) -> None:
    """Raise SettingsError where tools of this grant could change what is kept in `home`.

    At the top of a granted folder `.toolwire` is kept from every tool; under another name it would be any folder.
    """
    if grant.permissions.isdisjoint(_CHANGES_FILES):
        return
    own = home.resolve()
    for root in (Path(root).resolve() for root in grant.roots):
        if own.is_relative_to(root) and own != root / OWN_STATE:
            raise SettingsError(
                f"the record lies in {own}, where tools that may change {root} could change it too; "
                f"set store.home to a folder outside of grant.roots, or to {root / OWN_STATE}"
            )
