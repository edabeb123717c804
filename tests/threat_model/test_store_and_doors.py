"""The log, what is installed: threats T66 and T71, and controls for tests that live elsewhere."""

import hashlib
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.toolbox.test_canvas import HOSTILE, Tags
from toolwire import Agent, tool
from toolwire.gateway.log import RequestEntry, as_json, as_text
from toolwire.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]
UV = os.environ.get("UV", str(ROOT / ".tools/bin/uv"))
"""The installer that this project is installed with: the one that runs the tests, or the one that make fetched."""


def unhashed(lock: dict[str, Any]) -> list[str]:
    """The packages of a lock of which some file could be exchanged unnoticed."""
    wrong = []
    for package in lock["package"]:
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        is_ours = "editable" in package["source"] or "virtual" in package["source"]
        if not is_ours and not (files and all(file.get("hash", "").startswith("sha256:") for file in files)):
            wrong.append(package["name"])
    return wrong


def test_T71_every_file_that_is_installed_has_its_hash_in_the_lock() -> None:
    assert unhashed(tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))) == []


def test_T71_control_a_file_without_a_hash_would_be_found() -> None:
    text = '[[package]]\nname = "x"\nsource = { registry = "r" }\nwheels = [{ url = "https://files.example/x.whl" }]\n'

    assert unhashed(tomllib.loads(text)) == ["x"]


NAME = "tiny-1.0-py3-none-any.whl"


def publish(shelf: Path, code: str) -> None:
    """Put a distribution of one module on an index, with the hash that it really has."""
    about = "tiny-1.0.dist-info"
    files = {
        "tiny.py": code,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    page = shelf / "simple" / "tiny"
    page.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(shelf / NAME, "w") as packed:
        for name, text in files.items():
            packed.writestr(zipfile.ZipInfo(name), text)
    digest = hashlib.sha256((shelf / NAME).read_bytes()).hexdigest()
    (page / "index.html").write_text(f'<a href="/{NAME}#sha256={digest}">{NAME}</a>')


class Shelf(SimpleHTTPRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nobody reads it."""


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[str]:
    """An index of distributions on loopback; its address."""
    publish(tmp_path / "shelf", "WORD = 'harmless'")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Shelf, directory=str(tmp_path / "shelf"))) as server:
        serving = Thread(target=server.serve_forever, args=(0.02,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        serving.join()


class Project:
    """A project that needs one distribution, with its lock. Nothing of this machine's installer settings is used."""

    def __init__(self, folder: Path, index: str) -> None:
        self.folder = folder
        self._surroundings = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_PYTHON": sys.executable}
        self._surroundings |= {"UV_DEFAULT_INDEX": index, "UV_NO_CACHE": "1"}
        needs = "[project]\nname = 'mine'\nversion = '1'\nrequires-python = '>=3.11'\ndependencies = ['tiny']\n"
        (folder / "pyproject.toml").write_text(needs)
        self.uv("lock")
        exported = self.uv("export", "--frozen", "--no-emit-project").stdout
        (folder / "locked.txt").write_text(exported)

    def uv(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What the installer says."""
        return subprocess.run(
            [UV, *words], cwd=self.folder, env=self._surroundings, capture_output=True, text=True, timeout=60
        )

    def installed(self) -> list[str]:
        return [found.read_text() for found in self.folder.rglob("tiny.py")]


@pytest.fixture
def project(tmp_path: Path, shelf: str) -> Project:
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project", shelf)


WAYS = ["sync --frozen", "sync", "pip install --require-hashes -r locked.txt --target site"]


@pytest.mark.parametrize("way", WAYS)
def test_T71_a_file_that_was_exchanged_after_locking_is_not_installed(
    project: Project, tmp_path: Path, way: str
) -> None:
    """Not even where the index names the hash of the new one: what counts is the lock."""
    publish(tmp_path / "shelf", "WORD = 'evil'")

    told = project.uv(*way.split())

    assert told.returncode != 0
    assert "mismatch" in told.stderr.lower()
    assert project.installed() == []


@pytest.mark.parametrize("way", WAYS)
def test_T71_control_the_file_that_was_locked_is_installed(project: Project, way: str) -> None:
    assert project.uv(*way.split()).returncode == 0
    assert project.installed() == ["WORD = 'harmless'"]


def test_T71_control_without_the_lock_the_exchanged_file_is_installed(project: Project, tmp_path: Path) -> None:
    publish(tmp_path / "shelf", "WORD = 'evil'")

    assert project.uv("pip", "install", "tiny", "--target", "site").returncode == 0
    assert project.installed() == ["WORD = 'evil'"]


FORGERY = 'm\n{"status": 200}\r\nPOST /v1/messages m 200\x1b[2K\u2028x'


def test_T66_a_request_is_one_line_whatever_it_is_about() -> None:
    entry = RequestEntry("req_1", "POST", "/v1/messages", FORGERY, status=401)

    assert [len(line.splitlines()) for line in (as_text(entry), as_json(entry))] == [1, 1]


def test_T66_control_as_it_came_it_would_be_several() -> None:
    assert len(f"POST /v1/messages {FORGERY} 401".splitlines()) > 3


async def test_T67_control_without_being_known_as_a_secret_it_is_everywhere() -> None:
    @tool
    def login(password: str) -> str:
        """Log in."""
        return f"welcome {password}"

    answer = await Agent(ScriptedModel(call("login", password="hunter2/öl"), "in"), [login]).ask("log in")

    assert "welcome hunter2/öl" in repr(answer)


def test_T46_control_put_on_a_page_as_they_are_most_of_these_are_tags() -> None:
    page = Tags()
    page.feed("\n".join(HOSTILE))

    assert {"script", "img"} <= {name for name, _ in page.found}


def test_T35_control_outside_of_a_box_git_pushes(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        given = ["git", "-C", str(tmp_path / "work"), "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(given, check=True, capture_output=True, text=True, timeout=30).stdout

    for kind, folder in ((["--bare"], "remote"), ([], "work")):
        made = ["git", "init", "-q", "-b", "main", *kind, str(tmp_path / folder)]
        subprocess.run(made, check=True, capture_output=True, timeout=30)
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("push", "-q", str(tmp_path / "remote"), "main")

    assert "refs/heads/main" in git("ls-remote", str(tmp_path / "remote"))
