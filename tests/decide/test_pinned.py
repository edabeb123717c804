"""How many words of a command say what is run, and which of them an approval would name."""

import pytest

from toolwire.decide.pinned import names_program, offered_words
from toolwire.decide.shell import UNKNOWN

PINNED = [("git commit -m a", 2), ("touch a", 1), ("make test", 2), ("npx x", 2), ("uv run pytest -q", 3),
          ("bash x.sh a", 2), ("bash -eux x.sh", 3), ("python3 -m pytest -q", 3), ("npm run build", 3)]  # fmt: skip
OPEN = [("git commit", 0), (f"touch {UNKNOWN}", 2), (f"{UNKNOWN}", 1), ("make test", 1), ("npx x", 1), ("npx -c x", 3),
        ("uv run pytest", 2), ("bash x.sh", 1), ("bash -c x", 3), ("python3 -m pytest", 2), ("python3 -m timeit x", 3),
        ("eval ls", 2), ("bash", 1), ("bash -", 2)]  # fmt: skip
OFFERED = {
    "git commit -m a": 2, "git push": 0, "git": 0, "npm test": 2, "npm run build --x": 3, "npm run": 0, "make a b": 3,
    "bash": 0, "bash x.sh a": 2, "bash -eux x.sh a": 3, "python3 -m pytest -q": 3, "python3 -m timeit": 0, "cat a": 0,
    "touch a": 1, "./x a": 1, "sed -i s/a/b/ a": 2, "sed s/a/b/ a": 0, "cargo test --all": 2, "cargo": 0, "": 0,
    UNKNOWN: 0, f"touch {UNKNOWN}": 1, f"git {UNKNOWN}": 0,
}  # fmt: skip


@pytest.mark.parametrize(("text", "named"), PINNED)
def test_these_words_say_what_is_run(text: str, named: int) -> None:
    assert names_program(tuple(text.split(" ")), named) is True


@pytest.mark.parametrize(("text", "named"), OPEN)
def test_after_these_words_anything_could_be_run(text: str, named: int) -> None:
    assert names_program(tuple(text.split(" ")), named) is False


@pytest.mark.parametrize("text", OFFERED)
def test_an_approval_would_name_the_beginning_that_says_what_is_run(text: str) -> None:
    words = tuple(text.split(" ")) if text else ()
    assert offered_words(words) == words[: OFFERED[text]]
