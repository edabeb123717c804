"""What a shell text could change, show or fetch of what a rule denies, from whatever folder it runs in."""

import pytest
from msgspec.structs import replace

from tests.decide.test_rule_spellings import ADMIN, ALLOW, ASK, BASH, DENY, OFFLINE, ONLINE, under_secrets
from toolwire import Grant
from toolwire.decide.policy import ruling
from toolwire.decide.shell import read_shell
from toolwire.decide.shell_reach import candidates, named_paths
from toolwire.protocol.policy import Rule, Verdict

LOCKED = "deny write where path is locked/*"


def ruled(rule: str, text: str, grant: Grant = OFFLINE, **arguments: str) -> Verdict:
    return ruling(BASH, {"command": text, **arguments}, replace(grant, rules=(Rule.parse(rule),))).verdict


@pytest.mark.parametrize(
    ("verdict", "texts"),
    [
        (
            DENY,
            [
                *("rm locked/a", "rm -- locked/a", "cp a locked/b", "mv locked/a b", "install a locked/b"),
                *("tee locked/a", "> locked/a", "echo x > locked/a", "cp --weird locked/a b", "cp a locked/"),
            ],
        ),
        (
            ASK,
            [
                *("git rm locked/a", "git", "add", "git push", "python x.py", "touch $x", "cp --weird a b"),
                *("mv locked x", "ln -s locked x", "rm -r .", "rm -rf locked", "chmod -R 7 .", "cp -r src locked"),
            ],
        ),
        (
            ALLOW,
            [
                *("echo locked/a", "git add locked/a", "git commit -m locked/a", "git status", "cat locked/a"),
                *("mv a b", "mv src x", "rm -r src", "cp -r src x", "cp a b", "touch a", "chmod 7 a", "install a b"),
                *("> other/a", "cat a | tee b", "true && ls locked", "tee -a b", "true; touch a"),
            ],
        ),
    ],
)
def test_T91_a_command_changes_no_file_that_a_rule_denies_to_write(verdict: Verdict, texts: list[str]) -> None:
    assert [text for text in texts if ruled(LOCKED, text) is not verdict] == []


@pytest.mark.parametrize(
    "text",
    [
        *("cp a locked", "cp a ./locked", "cp -v a locked", "cp -t locked a", "cp -vt locked a", "cp -tlocked a b"),
        *("cp a --target-directory=locked b", "cp a --target-directory locked b", "cp a -t locked b"),
        *("install a locked", "install -m 600 a locked", "install -t locked a"),
        *("mv a locked", "mv a b -tlocked", "mv a b --target-directory=locked", "ln a b -tlocked"),
        f"cp {' '.join(f'-t{at}' for at in range(20))} a b",
    ],
)
def test_T91_a_file_that_is_put_into_a_folder_keeps_its_name_there(text: str) -> None:
    assert ruled(LOCKED, text) is ASK


@pytest.mark.parametrize(
    ("path", "text", "verdict"),
    [
        ("a", "cp x/a .", ASK),
        ("a", "cp x/b .", ALLOW),
        ("src/a", "cp x/a src", ASK),
        ("src/a", "cp x/a srcs", ALLOW),
        ("src/x/a", "cp --parents x/a src", ASK),
        ("src/x/a", "cp --parents y/a src", ALLOW),
        ("*.lock", "cp a b", ALLOW),
    ],
)
def test_T91_a_copy_is_asked_about_only_where_its_name_may_be_denied(path: str, text: str, verdict: Verdict) -> None:
    assert ruled(f"deny write where path is {path}", text) is verdict


@pytest.mark.parametrize(
    ("folder", "plain", "inner", "above"),
    [
        ("/w", ALLOW, DENY, ALLOW),
        ("/w/", ALLOW, DENY, ALLOW),
        (".", ALLOW, DENY, ALLOW),
        ("/w/locked", DENY, DENY, DENY),
        ("locked", DENY, DENY, DENY),
        ("/workspace/locked", DENY, DENY, DENY),
        ("/w/src", ALLOW, ALLOW, DENY),
        ("/etc", ALLOW, ALLOW, ALLOW),
    ],
)
def test_T91_words_are_meant_from_the_folder_that_a_command_runs_in(
    folder: str, plain: Verdict, inner: Verdict, above: Verdict
) -> None:
    texts = ("touch a", "touch locked/a", "touch ../locked/a")
    assert [ruled(LOCKED, text, workdir=folder) for text in texts] == [plain, inner, above]


@pytest.mark.parametrize(
    ("verdict", "texts"),
    [
        (DENY, ["cat -fsecrets/a", "cat a:secrets/b", "cat --x=secrets/a", "cat x=y=secrets/a", "git -C secrets log"]),
        (
            ASK,
            [
                *("pushd secrets; cat k", "popd; cat k", "cat 'x secrets/a'", "git log -p", "git reflog -p"),
                *("git status -v", "git add -p", "git config -f x", "git --no-pager show", "git log $x", "git"),
                "cd x; " * 6 + "cat k",
            ],
        ),
        (
            ALLOW,
            [
                *("git --no-pager log", "git -P status", "git -C x status", "git reflog", "git config a.b", "git tag"),
                "cd x; " * 5 + "cat k",
            ],
        ),
    ],
)
def test_T91_a_command_shows_no_file_that_a_rule_denies_to_read(verdict: Verdict, texts: list[str]) -> None:
    assert [text for text in texts if under_secrets(text).verdict is not verdict] == []


def test_every_part_of_a_word_that_may_be_a_path_is_looked_at() -> None:
    assert list(candidates("src/a")) == ["src/a"]
    assert list(candidates("-xyz")) == ["-xyz", "yz", "z"]
    assert list(candidates("--x=a:b")) == ["--x=a:b", "--x", "a", "b", "a:b"]
    assert named_paths(read_shell("cat a $x < b > c; ls d/*/e"), "/w/in", ["/w"]) == [
        *("in/cat", "in/a", "in/ls", "in/d", "in/d/\1", "in/b", "in/c")
    ]


@pytest.mark.parametrize(
    ("text", "online", "nowhere", "offline"),
    [
        ("curl good.test:8099/admin", DENY, ALLOW, DENY),
        ("curl url=http://good.test:8099/admin", DENY, ALLOW, DENY),
        ("curl localhost", ASK, ALLOW, DENY),
        ("python x", ASK, ALLOW, ALLOW),
        ("touch x", ALLOW, ALLOW, ALLOW),
        ("cat good.test:8099/admin", ALLOW, ALLOW, ALLOW),
    ],
)
def test_T92_a_command_fetches_no_page_that_a_rule_denies(
    text: str, online: Verdict, nowhere: Verdict, offline: Verdict
) -> None:
    grants = (ONLINE, OFFLINE, replace(ONLINE, permissions=frozenset({"shell"})))
    assert [ruled(ADMIN, text, grant) for grant in grants] == [online, nowhere, offline]


@pytest.mark.parametrize("host", ["good:8099", "good.test"])
def test_T92_an_address_may_be_written_without_its_scheme(host: str) -> None:
    assert ruled(f"deny webfetch where url is http://{host}/admin*", f"curl {host}/admin", ONLINE) is DENY
