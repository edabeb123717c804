"""What git commands reach and set, told from their words."""

import pytest

from toolwire.decide.git_words import needs_network, written_settings
from toolwire.decide.shell import read_shell

HERE = (
    "git clone . copy",
    "git clone -q --depth 1 -b main ../other",
    "git clone /srv/x y",
    "git clone file:///srv/x",
    "git fetch ./other",
    "git pull . topic",
    "git push ../backup main",
    "git submodule status",
    "git submodule foreach ls",
    "git submodule",
    "git status",
    "git",
)
AWAY = (
    "git clone https://example.org/x",
    "git clone git@example.org:x",
    "git clone ssh://example.org/x",
    "git clone ext::x",
    "git clone -b . https://example.org/x",
    'git clone "$1"',
    "git clone",
    "git fetch",
    "git fetch origin",
    "git push origin main",
    "git pull",
    "git ls-remote origin",
    "git submodule update --init",
    "git submodule add https://example.org/x",
)


@pytest.mark.parametrize("text", HERE)
def test_a_repository_on_this_machine_needs_no_network(text: str) -> None:
    assert not any(map(needs_network, read_shell(text).commands))


@pytest.mark.parametrize("text", AWAY)
def test_any_other_repository_does(text: str) -> None:
    assert any(map(needs_network, read_shell(text).commands))


SETTINGS = {
    "git config user.name 'Ann B'": [("user.name", "Ann B")],
    "git config --unset User.Name": [("user.name", "")],
    "git config set core.Editor vi": [("core.editor", "vi")],
    "git config remote.Origin.URL x": [("remote.Origin.url", "x")],
    "git remote add o https://x/y && git remote -v": [("remote.o.url", "https://x/y")],
    "git remote rename a b": [("remote.a.fetch", ""), ("remote.b.fetch", "")],
    "git remote": [],
    "git config --list": [],
    "git branch -u origin/main": [],
    "git branch -u origin/main topic": [],
    "git branch -u a b c": None,
    "git branch --unset-upstream": [],
    "git branch --unset-upstream a b": None,
    "git remote set-url o new old": [("remote.o.url", "new")],
    "git remote add o x y": None,
    "git remote set-url o": None,
    "git config -e": None,
    "git config -f x user.name y": None,
    "git config user.name $(x)": None,
    "git config user.name x > y": None,
    "git config user.name x; ls": None,
    "git remote add -f o https://x/y": None,
    "git remote update": None,
    "git -C sub config user.name x": None,
    "ls": None,
    "": None,
}


@pytest.mark.parametrize("text", SETTINGS)
def test_only_commands_that_do_nothing_but_set_settings_count(text: str) -> None:
    assert written_settings(read_shell(text)) == SETTINGS[text]
