"""Who answers at this machine."""

import os
from typing import Any

try:
    import pwd

    accounts: Any = pwd
except ImportError:  # not a Unix system
    accounts = None


def system_user() -> str:
    """The account that this process runs under. The system says so: no variable and no flag changes it."""
    if accounts is None:
        return os.getlogin()
    try:
        name: str = accounts.getpwuid(os.getuid()).pw_name
    except KeyError:  # an account without an entry, as in containers
        return f"uid {os.getuid()}"
    return name
