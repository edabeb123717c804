"""The log, what is installed: threats T66 and T71, and controls for tests that live elsewhere."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

from tests.toolbox.test_canvas import HOSTILE, Tags
from toolwire import Agent, tool
from toolwire.gateway.log import Entry, as_json, as_text
from toolwire.testing import ScriptedModel, call

ROOT = Path(__file__).parents[2]


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


FORGERY = 'm\n{"status": 200}\r\nPOST /v1/messages m 200\x1b[2K\u2028x'


def test_T66_a_request_is_one_line_whatever_it_is_about() -> None:
    entry = Entry("req_1", "POST", "/v1/messages", FORGERY, status=401)

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
