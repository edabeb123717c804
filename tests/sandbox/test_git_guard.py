"""T83: what a box makes is not obeyed by the user's own git. Real git on both sides, as root and as an ordinary user.

Every attack has its control: the same text, run without a box, is obeyed.
"""

from collections.abc import Iterable, Iterator
from shutil import chown

import pytest

from tests.sandbox.git_place import ORDINARY, Place, place_for

EVIL = """
mkdir -p evil && cp -r .git/. evil/ && rm -f evil/commondir evil/config.lock
git config -f evil/config core.fsmonitor "touch MARKER; false"
"""
PLANT = """
git init -q {0} && echo y > {0}/g && git -C {0} add g
git -C {0} -c user.name=a -c user.email=a@b.c commit -qm 1
git -C {0} config core.fsmonitor "touch MARKER; false"
git add {0} 2>/dev/null
"""
HOOK = "mkdir -p {0}; printf '#!/bin/sh\\ntouch MARKER\\n' > {0}/pre-commit; chmod +x {0}/pre-commit"
HOOKS = HOOK.format("tools/h")
MANY = """
sha=$(git rev-parse HEAD)
for n in $(seq 230); do printf '160000 %s 0\\tdeep/m%03d\\n' $sha $n; done | git update-index --index-info
"""
REBASE = """
mkdir -p .git/rebase-merge && cd .git/rebase-merge
git rev-parse HEAD > onto; git rev-parse HEAD > orig-head; echo refs/heads/master > head-name
echo 1 > msgnum; echo 1 > end; : > interactive; : > done; echo 'exec touch MARKER' > git-rebase-todo
"""

# Name of the attack: what the user had before, and what a box does.
ATTACKS = {
    "commondir": ("", f"{EVIL} echo ../evil > .git/commondir"),
    "commondir in a read-only folder": ("", f"{EVIL} echo ../evil > .git/commondir; chmod 555 .git"),
    "a planted repository in a read-only folder": ("", PLANT.format("sub") + "chmod 555 sub"),
    "a planted repository in a folder that cannot be listed": ("", PLANT.format("a/sub") + "chmod 311 a/sub a"),
    "the 230th submodule": (MANY, PLANT.format("deep/m230")),
    "the 230th submodule, with all the others made too": ("", MANY + PLANT.format("deep/m230")),
    "hooksPath with a comment": ("printf '[core]\\nhooksPath = tools/h # ours\\n' >> .git/config", HOOKS),
    "hooksPath partly in quotes": ("printf '[core]\\nhooksPath = \"tools\"/h\\n' >> .git/config", HOOKS),
    "hooksPath over two lines": ("printf '[core]\\nhooksPath = tools\\\\\\n/h\\n' >> .git/config", HOOKS),
    "hooksPath in an included file": (
        "git config include.path ../shared; git config -f shared core.hooksPath tools/h",
        HOOK.format("tools/h"),
    ),
    "hooksPath in a file that is included for a branch": (
        "git config includeIf.onbranch:m*.path ../shared; git config -f shared core.hooksPath tools/h",
        HOOK.format("tools/h"),
    ),
    "hooksPath in the user's own settings": ("git config --global core.hooksPath tools/h", HOOK.format("tools/h")),
    "hooksPath in the user's home": ("git config core.hooksPath '~/project/tools/h'", HOOK.format("tools/h")),
    "hooksPath by a link": (
        "mkdir -p tools/h; ln -s tools/h linked; git config core.hooksPath linked",
        "rm linked; " + HOOK.format("linked"),
    ),
    "what a hooksPath by a link leads to": (
        "mkdir -p tools/h; ln -s tools/h linked; git config core.hooksPath linked",
        HOOK.format("tools/h"),
    ),
    "hooksPath that is the top": ("git config core.hooksPath ~/project", HOOK.format(".")),
    "a hook with the time of a stand-in": (
        "git config core.hooksPath ~/project",
        HOOK.format(".") + "; touch -d @1 pre-commit",
    ),
    "a link with the time of a stand-in": (
        "git config core.hooksPath ~/project",
        HOOK.format("h") + "; ln -s h/pre-commit pre-commit; touch -h -d @1 pre-commit",
    ),
    "hooks that are a link": ("rm -r .git/hooks; mkdir h; ln -s ../h .git/hooks", HOOK.format("h")),
    "hooks whose link is exchanged": (
        "rm -r .git/hooks; mkdir h; ln -s ../h .git/hooks",
        "rm .git/hooks; " + HOOK.format(".git/hooks"),
    ),
    "an included file": (
        "git config include.path ../shared; git config -f shared user.name B",
        "git config -f shared core.fsmonitor 'touch MARKER; false'",
    ),
    "an included file that is missing": (
        "git config includeIf.gitdir:~/.path ../shared",
        "git config -f shared core.fsmonitor 'touch MARKER; false'",
    ),
    "settings of the worktree": (
        "git config extensions.worktreeConfig true",
        "git config -f .git/config.worktree core.fsmonitor 'touch MARKER; false'",
    ),
    "a script that a filter runs": (
        "mkdir tools; echo cat > tools/clean; git config filter.x.clean 'sh tools/clean'; "
        "echo '*.t filter=x' > .gitattributes",
        "echo 'touch MARKER; cat' > tools/clean; echo 1 > new.t",
    ),
    "a filter's script that is missing": (
        "mkdir tools; git config filter.x.clean './tools/clean'; echo '*.t filter=x' > .git/info/attributes",
        "printf '#!/bin/sh\\ntouch MARKER; cat\\n' > tools/clean; chmod +x tools/clean; echo 1 > new.t",
    ),
    "a step of a rebase": ("", REBASE),
    "a step of a rebase in a read-only folder": ("", f"{REBASE} chmod 555 .. ."),
    "a step of a rebase by a link": ("", f"{REBASE} cd ..; mv rebase-merge ../r; ln -s ../r rebase-merge"),
    "a git folder elsewhere": (
        "git init -q --separate-git-dir own.git",
        "git config -f own.git/config core.fsmonitor 'touch MARKER; false'",
    ),
}  # fmt: skip


@pytest.fixture(params=[0, ORDINARY], ids=["root", "ordinary user"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as opened:
        yield opened


@pytest.fixture(params=[0, ORDINARY], ids=["root", "ordinary user"])
def below(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A workspace that is a folder of its repository."""
    with place_for(request.param, "app") as opened:
        yield opened


def each_as_a_user(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each as an ordinary user, and some as root: every third, and where modes or the home of the user count."""
    chosen = [*enumerate(names)]
    pairs = [(ORDINARY, name) for _, name in chosen]
    pairs += [
        (0, name)
        for at, name in chosen
        if at % 3 == 0 or any(word in name for word in ("read-only", "cannot", "user's"))
    ]
    ids = [f"{name}-{'ordinary user' if user else 'root'}" for user, name in pairs]
    return pytest.mark.parametrize(("place", "name"), pairs, indirect=["place"], ids=ids)


@each_as_a_user(ATTACKS)
def test_T83_what_a_box_makes_is_not_obeyed_by_the_users_git(place: Place, name: str) -> None:
    before, attack = ATTACKS[name]
    place.shell(before)

    place.boxed(attack)
    said = place.looked_at()

    assert not place.marker.exists(), said
    assert place.shell("git status").returncode == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_T83_control_without_a_box_it_is(name: str) -> None:
    before, attack = ATTACKS[name]
    with place_for(0) as place:
        place.shell(before)
        place.shell(attack)
        place.marker.unlink(missing_ok=True)

        said = place.looked_at()

        assert place.marker.exists(), said


def test_T83_nothing_is_obeyed_while_the_box_is_open(place: Place) -> None:
    """A prompt or an editor asks git for the status whenever it likes."""
    planted = f"{EVIL} echo ../evil > .git/commondir; git config core.fsmonitor 'touch MARKER; false'"
    with place.running(f"{planted}; touch planted"):
        place.shell("until test -e planted; do sleep 0.01; done; rm planted")
        said = place.looked_at()

    assert not place.marker.exists(), said
    assert "nothing to commit" in place.shell("git add -A .; git commit -qm all; git status").stdout


BELOW = {
    "a submodule's repository is exchanged": (
        "git init -q lib && git -C lib commit -q --allow-empty -m 1 && git submodule --quiet add ./lib app/vendor/lib; "
        "git commit -qam sub",
        "rm -rf vendor/lib/.git; rm -rf vendor/lib; " + PLANT.format("vendor/lib"),
    ),
    "a submodule that is not there yet is planted": (
        "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),app/sub",
        PLANT.format("sub"),
    ),
    "hooks of the repository lie in the workspace": ("git config core.hooksPath app/hooks", HOOK.format("hooks")),
    "an included file lies in the workspace": (
        "git config include.path ../app/shared",
        "git config -f shared core.fsmonitor 'touch MARKER; false'",
    ),
    "the workspace becomes a repository": ("", "git init -q . ; git config core.fsmonitor 'touch MARKER; false'"),
}


@pytest.mark.parametrize("name", BELOW)
def test_T83_a_workspace_below_the_top_of_its_repository_is_guarded(below: Place, name: str) -> None:
    before, attack = BELOW[name]
    below.shell(before)

    below.boxed(attack)
    said = below.looked_at() + below.shell("git status; git commit --allow-empty -m x", below.workspace).stdout

    assert not below.marker.exists(), said


@pytest.mark.parametrize("name", BELOW)
def test_T83_control_below_the_top_it_is_obeyed_without_a_box(name: str) -> None:
    before, attack = BELOW[name]
    with place_for(0, "app") as below:
        below.shell(before)
        below.shell(attack, below.workspace)
        below.marker.unlink(missing_ok=True)
        said = below.looked_at() + below.shell("git status; git commit --allow-empty -m x", below.workspace).stdout

        assert below.marker.exists(), said


def test_below_the_top_git_works_outside_while_a_box_is_open_and_shows_nothing_of_ours(below: Place) -> None:
    below.shell("touch app/own; git add -A .; git commit -qm own")
    with below.running("true"):
        said = below.shell("git status --porcelain; git log -1 --format=%s", below.workspace)

    assert (said.stdout, said.stderr) == ("own\n", "")
    assert not (below.workspace / ".git").exists()


def test_T83_what_cannot_be_moved_aside_fails_the_call() -> None:
    """A folder of another user, whose repository a box makes a submodule."""
    with place_for(ORDINARY) as place:
        place.shell("mkdir sub; " + PLANT.format("sub").replace("git add sub", "git reset -q"))
        sub = place.workspace / "sub"
        chown(sub, 0, 0)
        chown(sub / ".git", 0, 0)

        told = place.boxed("git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; echo done")

        assert "the command has made 'sub/.git' (Operation not permitted), which other programs obey" in told["failure"]


def test_what_a_box_has_planted_is_told_in_its_result(place: Place) -> None:
    told = place.boxed(PLANT.format("sub"))

    assert told["exit"] == 0
    assert "'sub/.git' was made a submodule whose settings git would obey, so toolwire moved it" in told["held"][0]


ORDINARY_USES = {
    "commit": "echo y >> file; git add file; git commit -qm second; git log --format=%s",
    "branch and merge": "git checkout -qb topic; echo t > t; git add t; git commit -qm t; git checkout -q master; "
    "git merge -q --no-ff -m merged topic; git branch -d topic; git log -1 --format=%s",
    "rebase": "git checkout -qb topic; echo t > t; git add t; git commit -qm t; git checkout -q master; echo m > m; "
    "git add m; git commit -qm m; git rebase -q master topic; git log --format=%s",
    "stash": "echo z >> file; git stash -q; git stash pop -q; git diff --stat",
    "worktree": "git worktree add -q copy -b other; git -C copy status --short; git worktree list; "
    "git worktree remove copy",
    "gc and fsck": "git gc -q; git fsck",
    "clone": "git clone -q . copy; git -C copy log --format=%s",
    "tag": "git tag one; git tag",
    "cherry-pick": "git checkout -qb topic; echo t > t; git add t; git commit -qm t; git checkout -q master; "
    "git cherry-pick topic",
}  # fmt: skip


@each_as_a_user(ORDINARY_USES)
def test_git_works_in_a_box(place: Place, name: str) -> None:
    identity = (
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; set -e; "
    )

    told = place.boxed(identity + ORDINARY_USES[name])

    assert (told["exit"], told["held"]) == (0, []), told
    assert place.shell("git status --porcelain").stderr == ""


def test_a_rebase_that_stops_in_one_box_goes_on_in_the_next(place: Place) -> None:
    identity = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c; "
    place.shell(
        "git checkout -qb topic; echo t > file; git commit -qam t; git checkout -q master; echo m > file; "
        "git commit -qam m"
    )

    stopped = place.boxed(f"{identity} git rebase -q master topic")
    went_on = place.boxed(
        f"{identity} echo both > file; git add file; GIT_EDITOR=true git rebase --continue; git log --format=%s"
    )

    assert (stopped["exit"], stopped["held"], went_on["held"]) == (1, [], [])
    assert went_on["out"].endswith("t\nm\nfirst\n")


def test_steps_that_the_user_has_begun_stay(place: Place) -> None:
    """A rebase with `exec` of the user's own goes on after a box, and in one."""
    place.shell("echo y >> file; git commit -qam second; git rebase -q --exec 'exit 1' --root HEAD")
    assert "exec" in (place.top / ".git/rebase-merge/done").read_text()
    (place.top / ".git/rebase-merge/git-rebase-todo").write_text("exec echo mine\n")

    told = place.boxed("git status")

    assert told["held"] == []
    assert (place.top / ".git/rebase-merge/git-rebase-todo").read_text() == "exec echo mine\n"


UNSAFE = {
    "rebase-merge/strategy": "evil",
    "rebase-apply/apply-opt": "'--unsafe-paths'",
    "sequencer/opts": "[options] strategy = ../evil",
    "sequencer/todo": "exec true",
    "BISECT_NAMES": "$(true)",
    "objects/info/alternates": "../../../elsewhere",
    "remotes/other": "URL: ./evil",
    "worktrees/w/commondir": "../../../evil",
}


@pytest.mark.parametrize("names", [list(UNSAFE)[::2], list(UNSAFE)[1::2]], ids=["even", "odd"])
def test_T83_state_that_leads_git_to_programs_or_other_places_is_held_back(place: Place, names: list[str]) -> None:
    made = (f"mkdir -p $(dirname .git/{name}); cat > .git/{name} <<'END'\n{UNSAFE[name]}\nEND" for name in names)

    told = place.boxed("\n".join(made))

    assert len([said for said in told["held"] if "held-back" in said]) >= len(names), told["held"]
    assert [name for name in names if (place.top / ".git" / name).exists()] == []
