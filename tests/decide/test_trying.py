"""Which shell texts are tried in a box before a person is asked, and which only look."""

import pytest

from toolwire.decide.trying import may_be_tried, names_keys, only_looks

WRITES = [
    "rm a", "rm -rf build", "/bin/rm a", "ls; touch a", "rm /tmp/../etc/x", "echo x > a", "echo x > /tmp/../a",
    "git commit -m x", "git -C sub push", "git -c a=b commit", "git --git-dir x add a", "git --no-pager commit",
    "npm install", "npm -s install x", "pip install x", "sed -i s/a/b/ a", "sed -ni p a", "sed --in-place=.b s/a/b/ a",
    "gsed -i s/a/b/ a", "find . -delete", "find . -name x -delete", "cat {{secret:x}}", "mv a b", "cp a /tmp/../b",
]  # fmt: skip
UNCERTAIN = [
    "make test", "pytest -q", "python3 x.py", "cat a > /tmp/x", "rm /tmp/x", "rm -f", "echo x > $out", "git status",
    "git -C commit log", "git stash list", "git apply --check x", "git push --dry-run", "git", "npm test", "npm",
    "npm install --dry-run", "npm run build", "sed -n 1p a", "sed s/i/j/ a", "find . -name x", "echo -delete",
    "cat > /dev/null", "install-things install",
]  # fmt: skip
REACHES = ["curl http://a/", "/usr/bin/ssh a", "ls | nc a 1", "npx x"]


@pytest.mark.parametrize("text", WRITES)
def test_what_plainly_writes_is_not_tried(text: str) -> None:
    assert may_be_tried(text, reaches=False) is False


@pytest.mark.parametrize("text", UNCERTAIN)
def test_what_only_running_can_tell_is_tried(text: str) -> None:
    assert may_be_tried(text, reaches=True) is True


@pytest.mark.parametrize("text", REACHES)
def test_what_plainly_goes_out_is_tried_only_where_nothing_can_be_reached(text: str) -> None:
    assert (may_be_tried(text, reaches=True), may_be_tried(text, reaches=False)) == (False, True)


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("ls", True), ("cat a | head", True), ("make", False), ("cat .env", False), ("ls {{secret:a}}", False),
        ("test -w a", False), ("[ -w a ]", False), ("find . -writable", False), ("ls -w 3", True),
    ],
)  # fmt: skip
def test_a_text_that_only_looks_reads_no_keys_and_asks_nothing_about_writing(text: str, looks: bool) -> None:
    assert only_looks(text) is looks


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("cat .env", True), ("cat src/.env", True), ("cat 'a/.env'", True), ("cat ~/.config/gh/hosts.yml", True),
        ("cat ~/.aws/credentials", True), ("ls .SSH", True), ("A=.env cat a", True),
        ("cat src/a.py", False), ("cat environment", False), ("", False),
    ],
)  # fmt: skip
def test_a_file_with_keys_is_noticed_wherever_a_text_names_it(text: str, keys: bool) -> None:
    assert names_keys(text) is keys
