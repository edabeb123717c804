"""What a killed toolwire leaves for the user's git is found by the next start, and by `toolwire doctor` (T85)."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.git_place import ORDINARY, Place, place_for
from tests.sandbox.test_git_guard import EVIL, HOOK, PLANT, REBASE
from toolwire.cli.views.sandbox_engines import left_behind_line, sandbox_lines

LEFT = {
    "a planted repository": ("bubblewrap", PLANT.format("sub")),
    "a planted repository in a read-only folder": ("bubblewrap", PLANT.format("sub") + "chmod 555 sub"),
    "a step of a rebase": ("bubblewrap", f"({REBASE})"),
    "a pointer": ("none", f"{EVIL} echo ../evil > .git/commondir"),
    "settings": ("none", "git config core.fsmonitor 'touch MARKER; false'"),
    "a hook": ("none", HOOK.format(".git/hooks")),
}


@pytest.fixture
def place() -> Iterator[Place]:
    with place_for(ORDINARY) as opened:
        yield opened


def killed(place: Place, engine: str, text: str) -> None:
    """Run a command in a box whose toolwire is killed before it can look at what the command has made."""
    # Stopped first, so that it does not look meanwhile.
    waiting = f"touch started; until test -e go; do sleep 0.01; done\n{text}\ntouch done; sleep 20"
    with place.start(waiting, engine) as one:
        place.shell("until test -e started; do sleep 0.01; done")
        os.kill(one.pid, signal.SIGSTOP)
        place.shell("touch go; until test -e done; do sleep 0.01; done; rm started go done")
        os.kill(one.pid, signal.SIGKILL)


@pytest.mark.parametrize("name", LEFT)
def test_T85_the_next_box_finds_what_a_killed_toolwire_has_left(place: Place, name: str) -> None:
    engine, text = LEFT[name]
    killed(place, engine, text)

    told = place.boxed("true", engine)
    said = place.looked_at()

    assert not place.marker.exists(), said
    assert len(told["held"]) == 1


@pytest.mark.parametrize("name", LEFT)
def test_T85_control_before_the_next_box_it_is_obeyed(place: Place, name: str) -> None:
    engine, text = LEFT[name]
    killed(place, engine, text)
    said = place.looked_at()

    assert place.marker.exists(), said


def test_T85_doctor_finds_what_a_killed_toolwire_has_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(place, "bubblewrap", PLANT.format("sub"))
    monkeypatch.setenv("XDG_STATE_HOME", str(place.folder / "state"))

    line = next(line for line in sandbox_lines() if line.what == "left behind")

    assert line.state == "warn"
    assert "'sub/.git' was made a submodule" in line.more[0]
    place.looked_at()
    assert not place.marker.exists()
    assert left_behind_line().state == "ok"


def test_a_note_goes_with_its_box_and_holds_no_content(place: Place) -> None:
    place.shell("git config user.name Secret")
    folder = place.folder / "state" / "toolwire" / "open-boxes"
    with place.running("true"):
        (note,) = folder.iterdir()
        text = note.read_text()
    place.boxed("true")

    assert "Secret" not in text
    assert json.loads(text)["workspace"] == str(place.workspace)
    assert list(folder.iterdir()) == []


FORGED: tuple[object, ...] = (
    {},
    {"workspace": "/"},
    {"folders": ["../../x"], "links": {"../../y": "z"}, "files": {"../../marker": "0"}},
    [],
)


@pytest.mark.parametrize("forged", FORGED)
def test_T85_a_forged_note_reaches_nothing_outside_of_the_workspace(place: Place, forged: object) -> None:
    folder = place.folder / "state" / "toolwire" / "open-boxes"
    with place.running("true"):
        (note,) = folder.iterdir()
        whole = json.loads(note.read_text())
        name = note.name
    place.marker.touch()
    planted: Path = folder / name.replace(name.split("-")[1], "4194303", 1)
    planted.write_text(json.dumps({**whole, **forged} if isinstance(forged, dict) else forged))

    told = place.boxed("true")

    assert told["exit"] == 0
    assert place.marker.exists()
