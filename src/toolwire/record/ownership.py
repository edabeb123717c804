"""Whether a state folder such as `.toolwire` was made by this user, and proof of what toolwire wrote into it.

A clone or an archive can bring a state folder of its own: with approvals, with turns, with a plan of changes that a
crashed process would have left. Each user therefore has one random key, kept in the user's state folder, outside of
every project. A folder that toolwire makes is signed with it, for its real path; a folder without that signature is
used only if there is nothing in it. The folder's signature is not enough for what is obeyed later (a plan, the store,
the key of checkpoints), since `git pull` can add files to a folder that is the user's: each carries its own signature.

No link in such a folder is followed. `git` and archives can bring links, and toolwire makes none.
"""

import errno
import hmac
import os
import re
import shlex
import stat
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from toolwire.lazy import lazy_module
from toolwire.protocol.checked import describe_value
from toolwire.protocol.files import UntrustedState
from toolwire.protocol.obeyed import OWN_STATE

if TYPE_CHECKING:
    import platformdirs
else:
    platformdirs = lazy_module("platformdirs")  # few processes need it

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = lazy_module("tempfile")  # few users lack a state folder

SIGNATURE = "signature"
TRUST_VARIABLE = "TOOLWIRE_TRUST"
USED_NAMES = frozenset(
    "store.db store.db-wal store.db-shm store.db-journal owners artifacts logs canvas todos changes audit.key "
    "errors.log history writer sockets nats".split()
)
"""Everything that toolwire keeps in a state folder, besides what says whose it is."""

_IGNORE = ".gitignore"
_SIGNATURES = re.compile(r"signature(\.[0-9a-f]{16})?", re.ASCII)  # with those that a process died while writing
_KEY = "key"
_WRITER = "writer"
_WRITER_BYTES = 8
_WRITER_NAME = re.compile(r"[0-9a-f]{16}", re.ASCII)
_KEY_BYTES = 32
_LONGEST_SIGNATURE = 128
_STAND_IN_TIME = 1  # an open sandbox puts an empty file of this time where there is no state folder yet
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened whose last part may not be a link."""

_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def state_folder() -> Path:
    """The folder of what toolwire remembers about its user on this platform."""
    return Path(platformdirs.user_state_dir("toolwire", appauthor=False))


def real_path(folder: Path | str) -> str:
    """The one path of a folder whose last part is not a link."""
    path = os.path.abspath(folder)  # noqa: PTH100 - Path.resolve would follow the last part too
    above, name = os.path.split(path)
    return os.path.join(os.path.realpath(above), name)  # noqa: PTH118


def signature(kind: str, where: str, content: bytes = b"") -> str:
    """Proof that this user's toolwire wrote `content` of some kind at a path. Raises OSError without a key."""
    message = b"\0".join((b"toolwire", kind.encode(), os.fsencode(where), content))
    return hmac.new(_key(), message, sha256).hexdigest()


def is_signed(given: str, kind: str, where: str, content: bytes = b"") -> bool:
    """Whether `given` is the proof for this content. Raises OSError without a key."""
    return hmac.compare_digest(given.encode(errors="replace"), signature(kind, where, content).encode())


def is_covered(path: Path | str, variable: str) -> bool:
    """Whether a path lies in a folder that the variable TOOLWIRE_TRUST names in full."""
    named = (Path(part) for part in variable.split(os.pathsep) if part)
    real = Path(path).resolve()
    return any(real.is_relative_to(folder.resolve()) for folder in named if folder.is_absolute())


def open_own(folder: Path | str, *, above: int | None = None, where: str = "") -> int:
    """A descriptor of a state folder that this user made, made and signed if it is missing or empty.

    With `above`, `folder` is a name in that open folder, and `where` its real path. Raises UntrustedState and OSError.
    """
    return _opened(folder, above, where or real_path(folder), must_be_own=True)


def named_folder(home: object) -> Path:
    """The folder that a program names for a record; `~` stands for the user's home. Raises TypeError for no name."""
    if not isinstance(home, (str, os.PathLike)) or not os.fspath(home):
        raise TypeError(f"a folder is named by text or a Path, not by {describe_value(home)}")
    return Path(home).expanduser()


def prepare(folder: Path) -> None:
    """Make a state folder, or look at one that a program or user names: it may be of any maker, but without links.

    Raises UntrustedState and OSError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    os.close(_opened(folder, None, real_path(folder), must_be_own=False))


def is_own(folder: Path) -> bool:
    """Whether a state folder is there, and this user's."""
    try:
        descriptor = os.open(folder, FOLDER_FLAGS)
    except OSError:
        return False
    try:
        where = real_path(folder)
        _require_user(descriptor, where)
        _refuse_links(descriptor, where)
        return _is_own(descriptor, where)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def adopt(folder: Path) -> None:
    """Take a state folder for this user's from now on. Raises UntrustedState for what cannot be, and OSError."""
    descriptor = _open_folder(folder, None, where := real_path(folder))
    try:
        _require_user(descriptor, where)
        _refuse_links(descriptor, where)
        _tighten(descriptor, where)
        _sign(descriptor, where)
    finally:
        os.close(descriptor)


def disown(folder: Path) -> None:
    """Take a state folder for this user's no longer. Raises OSError."""
    descriptor = _open_folder(folder, None, real_path(folder))
    try:
        with suppress(FileNotFoundError):
            os.unlink(SIGNATURE, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def open_folder(name: str | Path, above: int | None = None) -> int:
    """A descriptor of a folder, made if it is missing. Raises OSError, also for a link."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=above)
    return os.open(name, FOLDER_FLAGS, dir_fd=above)


def open_home(folder: Path) -> int:
    """A descriptor of a folder that may hold state, made if it is missing; one called `.toolwire` must be this user's.

    Raises UntrustedState and OSError.
    """
    if folder.name == OWN_STATE:
        return open_own(folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def open_inner(folder: Path) -> int:
    """A descriptor of a folder in one that may hold state; see `open_home`. Raises UntrustedState and OSError."""
    home = open_home(folder.parent)
    try:
        return open_folder(folder.name, home)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
            raise
        raise UntrustedState(_says_link(real_path(folder.parent), folder.name)) from None
    finally:
        os.close(home)


def _opened(folder: Path | str, above: int | None, where: str, *, must_be_own: bool) -> int:
    is_new = False
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700, dir_fd=above)
        is_new = True
    descriptor = _open_folder(folder, above, where)
    try:
        if must_be_own:
            _require_user(descriptor, where)
        _refuse_links(descriptor, where)
        if is_new or _is_named_so(where):
            with suppress(FileExistsError):
                _write(descriptor, _IGNORE, b"*\n")
        if os.fstat(descriptor).st_uid == os.geteuid():
            _settle_owner(descriptor, where, must_be_own=must_be_own)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _settle_owner(descriptor: int, where: str, *, must_be_own: bool) -> None:
    """Sign what is empty, tighten what is the user's, refuse the rest where it must be the user's."""
    if _is_empty(descriptor, where):
        _tighten(descriptor, where)
        if must_be_own:
            _sign(descriptor, where)
        else:
            with suppress(OSError):  # a program's own store needs no key
                _sign(descriptor, where)
    elif not must_be_own or _is_own(descriptor, where):
        _tighten(descriptor, where)
    else:
        raise UntrustedState(
            f"{where} was not made here by you: it may hold approvals, turns and changes of someone else. "
            "If it is yours and you moved or restored it, or if you trust it, run: "
            f"toolwire trust {shlex.quote(where)}\nOtherwise remove it."
        )


def _open_folder(folder: Path | str, above: int | None, where: str) -> int:
    try:
        return os.open(folder, FOLDER_FLAGS, dir_fd=above)
    except OSError as error:
        if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
            raise
        about = os.stat(folder, dir_fd=above, follow_symlinks=False)
        if stat.S_ISREG(about.st_mode) and not about.st_size and about.st_mtime == _STAND_IN_TIME:
            raise BlockingIOError(errno.EAGAIN, "a command that runs in this folder holds the name") from None
        what = "a link" if stat.S_ISLNK(about.st_mode) else "not a folder"
        raise UntrustedState(
            f"{where} is {what}, so toolwire keeps nothing in it. Move it away, or name another folder."
        ) from None


def _require_user(descriptor: int, where: str) -> None:
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        raise UntrustedState(
            f"{where} belongs to another user (number {owner}), so nothing in it is used. "
            "Remove it, or change its owner."
        )


def _tighten(descriptor: int, where: str) -> None:
    """Let no other user in; a folder that is also something else, such as a project, stays readable."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    tight = mode & (0o700 if _is_named_so(where) else 0o755)
    if mode != tight:
        os.fchmod(descriptor, tight)


def _refuse_links(descriptor: int, where: str) -> None:
    for name in _names(descriptor):
        if name not in USED_NAMES | {SIGNATURE, _IGNORE} and not _is_named_so(where):
            continue
        with suppress(FileNotFoundError):
            mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UntrustedState(_says_link(where, name))


def _says_link(where: str, name: str) -> str:
    return (
        f"{where} holds {name!r}, which is a link or a special file and was not made by toolwire; "
        f"nothing in the folder is used. Remove {shlex.quote(f'{where}/{name}')}"
    )


def _is_empty(descriptor: int, where: str) -> bool:
    """Whether there is nothing that toolwire would use, and in a folder of its own name nothing at all."""
    names = {name for name in _names(descriptor) if not _SIGNATURES.fullmatch(name)} - {_IGNORE}
    return not (names if _is_named_so(where) else names & USED_NAMES)


def _is_named_so(where: str) -> bool:
    return os.path.basename(where) == OWN_STATE  # noqa: PTH119


def _names(descriptor: int) -> Iterable[str]:
    return os.listdir(descriptor)


def _is_own(descriptor: int, where: str) -> bool:
    if is_covered(where, os.environ.get(TRUST_VARIABLE, "")):
        return True
    try:
        given = read_file(SIGNATURE, descriptor, _LONGEST_SIGNATURE)
    except OSError:
        return False
    return is_signed(given.decode("ascii", "replace").strip(), "folder", where)


def _sign(descriptor: int, where: str) -> None:
    content = f"{signature('folder', where)}\n".encode()
    with suppress(OSError):
        if read_file(SIGNATURE, descriptor, _LONGEST_SIGNATURE) == content:
            return
    replace_file(SIGNATURE, descriptor, content)


def read_file(name: str | Path, above: int | None, most: int, *, of_user: bool = False) -> bytes:
    """A regular file, at most so many bytes of it. Raises OSError, also for a link, a pipe or a device.

    With `of_user` it must be the user's own, and is kept from others.
    """
    with open(os.open(name, _OLD, dir_fd=above), "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        if of_user and about.st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, "belongs to another user")
        if of_user and about.st_mode & 0o077:
            os.fchmod(file.fileno(), 0o600)
        return file.read(most)


def replace_file(name: str, above: int, content: bytes) -> None:
    """Write a file at once, in place of what has its name. Raises OSError."""
    draft = f"{name}.{os.urandom(8).hex()}"
    try:
        _write(above, draft, content)
        os.rename(draft, name, src_dir_fd=above, dst_dir_fd=above)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=above)
        raise


def write_once(name: str, above: int, content: bytes) -> None:
    """Write a file at once, unless another process was faster: then its content counts. Raises OSError."""
    draft = f"{name}.{os.urandom(8).hex()}"
    try:
        _write(above, draft, content)
        with suppress(FileExistsError):
            os.link(draft, name, src_dir_fd=above, dst_dir_fd=above, follow_symlinks=False)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=above)


def writer_name(home: Path) -> str:
    """The name under which what is written from this folder is audited, made if there is none. Raises OSError."""
    folder = os.open(home, FOLDER_FLAGS)
    try:
        write_once(_WRITER, folder, os.urandom(_WRITER_BYTES).hex().encode())
        name = read_file(_WRITER, folder, 2 * _WRITER_BYTES).decode("ascii", "replace")
    finally:
        os.close(folder)
    if not _WRITER_NAME.fullmatch(name):
        raise OSError(errno.EINVAL, f"{_WRITER} is damaged; remove it")
    return name


def _write(descriptor: int, name: str, content: bytes) -> None:
    with open(os.open(name, _NEW, 0o600, dir_fd=descriptor), "wb") as file:  # noqa: PTH123
        file.write(content)


def _key() -> bytes:
    """The user's key, made if there is none. Where the state folder cannot be written, it lies in a temporary one."""
    folders = state_folder(), Path(tempfile.gettempdir()) / f"toolwire-{os.geteuid()}"
    for folder in folders:
        try:
            return _read_key(folder)
        except (FileNotFoundError, NotADirectoryError):
            with suppress(OSError):
                return _make_key(folder)
    raise OSError(errno.EACCES, f"no key can be kept in {folders[0]}; set XDG_STATE_HOME to a folder for it")


def _read_key(folder: Path) -> bytes:
    above = os.open(folder, FOLDER_FLAGS)
    try:
        if os.fstat(above).st_uid != os.geteuid():
            raise FileNotFoundError(errno.ENOENT, "the folder belongs to another user")
        key = read_file(_KEY, above, _KEY_BYTES + 1, of_user=True)
    except PermissionError:
        raise OSError(
            errno.EACCES, f"the key {folder / _KEY} cannot be read; correct its owner, or remove it"
        ) from None
    finally:
        os.close(above)
    if len(key) != _KEY_BYTES:
        raise OSError(errno.EINVAL, f"the key {folder / _KEY} is damaged; remove it")
    return key


def _make_key(folder: Path) -> bytes:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    above = os.open(folder, FOLDER_FLAGS)
    try:
        write_once(_KEY, above, os.urandom(_KEY_BYTES))
    finally:
        os.close(above)
    return _read_key(folder)
