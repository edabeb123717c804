"""Names of files and folders that hold keys and passwords, wherever they lie. The one list of them."""

from collections.abc import Iterable

KEY_FOLDERS = frozenset(".ssh .gnupg .aws .azure .kube .docker .password-store".split())
KEY_FILES = frozenset(
    ".env .envrc .netrc _netrc .git-credentials .pgpass .my.cnf .pypirc .vault-token .htpasswd .s3cfg .boto "
    "id_rsa id_dsa id_ecdsa id_ed25519 id_ecdsa_sk id_ed25519_sk".split()
)
# Folders that hold keys only beneath another one.
KEY_FOLDERS_IN = frozenset({(".config", "gh"), (".config", "gcloud"), (".config", "hub")})
HIDDEN_AT_TOP = frozenset({".toolwire", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".local/state/toolwire"})
"""Folders at the top of a workspace that no command is shown, approved or not."""

HIDDEN_ANYWHERE = frozenset({".toolwire", ".ssh", ".gnupg"})
_ENVIRONMENT = ".env."
_SAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")


def is_key_file(name: str) -> bool:
    """Whether a file of this name holds keys: `.env.local` does, `.env.example` does not."""
    plain = name.casefold()
    return plain in KEY_FILES or (plain.startswith(_ENVIRONMENT) and not plain.endswith(_SAMPLES))


def is_key_folder(name: str, above: str = "") -> bool:
    """Whether a folder of this name, in one called `above`, holds keys."""
    plain = name.casefold()
    return plain in KEY_FOLDERS or (above.casefold(), plain) in KEY_FOLDERS_IN


def holds_keys(path: str) -> bool:
    """Whether a path leads to keys, by any of its names."""
    return _any_key([part for part in path.split("/") if part not in ("", ".")])


def is_always_hidden(path: str) -> bool:
    """Whether a folder of a workspace is not shown to any command."""
    return path in HIDDEN_AT_TOP or path.rpartition("/")[2] in HIDDEN_ANYWHERE


def _any_key(parts: Iterable[str]) -> bool:
    above = ""
    for part in parts:
        if is_key_file(part) or is_key_folder(part, above):
            return True
        above = part
    return False
