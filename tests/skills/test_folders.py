"""What may lie in the folder of a skill, and what its digest covers."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.skills.making import GREET, GREET_TOML, all_trusted, always, greeter, program, write
from toolwire.errors import DefinitionError
from toolwire.execute.skill_folders import look_into
from toolwire.toolbox.skills.catalog import read_skill


def _link(folder: Path) -> None:
    (folder / "bin" / "greet").unlink()
    (folder / "bin" / "greet").symlink_to("/bin/sh")


def _link_inside(folder: Path) -> None:
    (folder / "bin" / "also").symlink_to("greet")


def _linked_folder(folder: Path) -> None:
    (folder / "etc").symlink_to("/etc")


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def _anyones_file(folder: Path) -> None:
    (folder / "bin" / "greet").chmod(0o777)


def _anyones_folder(folder: Path) -> None:
    (folder / "bin").chmod(0o777)


def _missing(folder: Path) -> None:
    (folder / "bin" / "greet").unlink()


def _is_folder(folder: Path) -> None:
    (folder / "bin" / "greet").unlink()
    (folder / "bin" / "greet").mkdir()


def _may_not_run(folder: Path) -> None:
    (folder / "bin" / "greet").chmod(0o644)


def _too_deep(folder: Path) -> None:
    folder.joinpath(*["a"] * 20).mkdir(parents=True)


def _too_large(folder: Path) -> None:
    with (folder / "huge").open("wb") as file:
        file.truncate(65 * 2**20)


def _too_many(folder: Path) -> None:
    for number in range(2_001):
        (folder / str(number)).touch()


@pytest.mark.threat("T70")
@pytest.mark.contrast("T70")
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_link, "is a link"),
        (_link_inside, "is a link"),
        (_linked_folder, "is a link"),
        (_pipe, "no regular file"),
        (_anyones_file, "can be changed by anyone"),
        (_anyones_folder, "can be changed by anyone"),
        (_missing, "there is no file bin/greet in the skill's folder"),
        (_is_folder, "there is no file bin/greet in the skill's folder"),
        (_may_not_run, "chmod u\\+x"),
        (_too_deep, "more than 16 deep"),
        (_too_large, "more than 64 MiB"),
        (_too_many, "more than 2000 files"),
    ],
)
def test_a_folder_with_what_no_skill_may_hold_is_refused(
    skills: Path, spoil: Callable[[Path], None], says: str
) -> None:
    """T70: the binary lies under the skill's folder, is regular, and not everybody can change it."""
    folder = greeter(skills / "greeter")
    read_skill(folder, always)  # the control: it is fine before

    spoil(folder)

    with pytest.raises(DefinitionError, match=says):
        read_skill(folder, always)


@pytest.mark.threat("T54")
@pytest.mark.parametrize(
    "change",
    [
        lambda folder: program(folder / "bin" / "greet", GREET + "\n"),
        lambda folder: write(folder / "skill.toml", GREET_TOML.replace("VERSION", "1") + "\n"),
        lambda folder: write(folder / "notes.md", ""),
        lambda folder: (folder / "skill.toml").chmod(0o755),
        lambda folder: (folder / "bin" / "greet").rename(folder / "bin" / "other"),
    ],
)
def test_a_digest_changes_with_anything_in_the_folder(skills: Path, change: Callable[[Path], object]) -> None:
    folder = greeter(skills / "greeter")
    before = look_into(folder).digest
    change(folder)
    assert look_into(folder).digest != before


def test_a_digest_is_the_same_wherever_the_folder_lies(skills: Path) -> None:
    digests = {look_into(greeter(skills / name)).digest for name in ("one", "two")}
    assert len(digests) == 1


def test_what_git_and_python_leave_behind_is_neither_counted_nor_copied(skills: Path, tmp_path: Path) -> None:
    folder = greeter(skills / "greeter")
    before = look_into(folder).digest
    write(folder / ".git" / "config", "x")
    write(folder / "bin" / "__pycache__" / "greet.pyc", "evil")

    copied = tmp_path / "copy"
    copied.mkdir()

    assert look_into(folder, copied).digest == before
    assert sorted(path.relative_to(copied).as_posix() for path in copied.rglob("*")) == [
        "bin", "bin/greet", "skill.toml",
    ]  # fmt: skip


@pytest.mark.feature("F056")
def test_every_skill_of_a_folder_is_found_and_a_broken_one_keeps_none_from_being_found(skills: Path) -> None:
    greeter(skills / "a")
    write(skills / "b" / "skill.toml", "[[tools]]\nnam = 'x'\n")
    write(skills / "c" / "SKILL.md", "---\ndescription: Something.\n---\nDo it.")
    write(skills / "d" / "README.md", "no skill")
    write(skills / "e.md", "no folder")

    seen = all_trusted(skills)

    assert [found.skill.name for found in seen.found] == ["a", "c"]
    assert list(seen.broken) == [skills / "b"]
    assert "unknown key 'nam'; did you mean name?" in seen.broken[skills / "b"]


def test_where_there_is_no_folder_there_are_no_skills(tmp_path: Path) -> None:
    assert all_trusted(tmp_path / "nowhere").found == ()
