"""Which questions to git only read."""

import pytest

from toolwire.decide.git_reading import git_reads
from toolwire.decide.habits import OptionTable

READS = [
    "--version", "reflog", "reflog show", "worktree list", "worktree list --porcelain", "remote get-url origin",
    "remote get-url --all origin", "-C sub status", "-C a -C b status -s", "--no-pager log -p", "branch --list a*",
    "branch --contains HEAD", "config --get user.name", "config -l", "stash show -p", "stash list", "tag -l v*", "tag",
    "branch -a", "remote -v", "log -- -x",
]  # fmt: skip
CHANGES = [
    "", "-C", "--version x", "reflog expire", "reflog show x", "worktree add x", "worktree list x",
    "remote get-url a b", "remote add a b", "config user.name x", "config --get --unset a", "branch new", "tag v1",
    "branch --list --force a", "stash", "stash pop", "commit", "status --unknown", "log --output=x", "remote x",
]  # fmt: skip


@pytest.mark.parametrize("words", READS)
def test_a_question_to_git_only_reads(words: str) -> None:
    assert git_reads(words.split()) is True


@pytest.mark.parametrize("words", CHANGES)
def test_anything_else_may_change_something(words: str) -> None:
    assert git_reads(words.split()) is False


@pytest.mark.parametrize(
    ("words", "held"),
    [
        ("-a -b", True), ("-ab", True), ("-x", False), ("-n 3", True), ("-n3", True), ("--all", True),
        ("--all=x", True), ("--some", False), ("one", True), ("one two", False), ("-- -x", True),
        ("-- -x -y", False), ("-- --", True),
        ("one -- two", False), ("-a one", True),
    ],
)  # fmt: skip
def test_habits_hold_for_known_options_and_so_many_further_words(words: str, held: bool) -> None:
    assert OptionTable("ab", "n", "all", 1).hold(words.split()) is held
