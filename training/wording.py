"""How a request is worded: choices inside a frame, manners, quotes, sloppy typing."""

import re
from functools import cache

from training.values import DATA, Draw, words

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"(\{[\w.]+\})")
_DOUBLED = re.compile(r"\b(?:the|a|an) ((?:a|the|our|my|any) )")
QUOTES = (('"', '"'), ('"', '"'), ("'", "'"), ("“", "”"), ("`", "`"), ("«", "»"))


def worded(frame: str, said: dict[str, str], rng: Draw, *, alone: bool = True) -> str:
    """The request that a frame makes of these values; typos never touch a value."""
    text = chosen(frame, rng)
    loose = _is_loose(text, said)
    text = _ended(_mannered(text, rng, loose), said, rng) if alone else text
    sloppy, low = rng.random() < 0.12, rng.random() < 0.3
    opening, closing = _quotes(said, rng)
    if alone and not low and rng.random() < 0.85:
        text = text[:1].upper() + text[1:]
    text = _quoted(text, opening, closing, rng)
    pieces = [_rough(piece, rng, sloppy, low) if not _SLOT.fullmatch(piece) else piece for piece in _SLOT.split(text)]
    text = re.sub(r"\{([\w.]+)\}", lambda slot: said[slot[1]], "".join(pieces))
    text = _DOUBLED.sub(r"\1", text)
    return f"{rng.choice(words('context'))} {text}" if alone and rng.random() < 0.04 else text


def _is_loose(text: str, said: dict[str, str]) -> bool:
    """Whether the request ends in free words, where nothing may be added that could be taken for one of them."""
    last = re.search(r"\{([\w.]+)\}$", text)
    return last is not None and " " in said[last[1]]


def chosen(frame: str, rng: Draw) -> str:
    """One of `[this|that|]` wherever a frame offers it."""
    while _CHOICE.search(frame):
        frame = _CHOICE.sub(lambda options: rng.choice(options[1].split("|")), frame)
    return re.sub(r" +", " ", frame).strip()


def is_order(text: str) -> bool:
    """Whether the frame is an order (`send …`), which takes `please` and `could you`."""
    return (
        text[:1].islower()
        and not text.endswith("?")
        and text.split(maxsplit=1)[0].rstrip(":,") not in words("notorder")
    )


def _mannered(text: str, rng: Draw, loose: bool) -> str:
    luck = rng.random()
    if is_order(text):
        if luck < 0.3:
            opening = rng.choice(words("opening"))
            mark = "?" if opening.split()[0] in {"could", "can", "would", "will"} and rng.random() < 0.8 else ""
            return f"{opening} {text}{mark}"
        if luck < 0.38 and not loose:
            return f"{text}{rng.choice([' please', ', please', ', thanks', ' for me', ' now', ' thx', ', ok?'])}"
    elif luck < 0.1:
        return f"{rng.choice(words('hello'))} {text}"
    if luck > 0.96 and not loose:
        return f"{text}{'' if text[-1:] in '?.!' else '.'} {rng.choice(words('aside'))}"
    return text


def _quotes(said: dict[str, str], rng: Draw) -> tuple[str, str]:
    every = "".join(said.values())
    pairs = [pair for pair in QUOTES if pair[0] not in every and pair[1] not in every]
    return rng.choice(pairs or [("“", "”")])


def _quoted(text: str, opening: str, closing: str, rng: Draw) -> str:
    """Quotes in the style of this person; at the very end some people leave them out."""
    if re.search(r'[:a-z] "\{[\w.]+\}"$', text) and rng.random() < 0.4:
        return text.replace('"', "")
    return re.sub(r'"([^"]*)"', lambda inner: f"{opening}{inner[1]}{closing}", text)


def _rough(piece: str, rng: Draw, sloppy: bool, low: bool) -> str:
    piece = " ".join(_other(word, rng) for word in piece.split(" "))
    piece = piece.lower() if low else piece
    if not sloppy:
        return piece
    return " ".join(typo(word, rng) if rng.random() < 0.15 else word for word in piece.split(" "))


@cache
def _swaps() -> dict[str, list[str]]:
    rows = (DATA / "swaps.txt").read_text(encoding="utf-8").splitlines()
    return {word: others.split(",") for word, _, others in (row.partition("=") for row in rows)}


def _other(word: str, rng: Draw) -> str:
    """Now and then another word that says the same."""
    others = _swaps().get(word)
    return rng.choice(others) if others and rng.random() < 0.07 else word


def typo(word: str, rng: Draw) -> str:
    """The word with a slip of the finger; short words and those with digits stay."""
    if len(word) < 4 or not word.isalpha():
        return word
    at = rng.randint(1, len(word) - 2)
    match rng.randint(0, 3):
        case 0:
            return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        case 1:
            return word[:at] + word[at + 1 :]
        case 2:
            return word[:at] + word[at] + word[at:]
    return word[:at] + rng.choice("aeionrtsl") + word[at + 1 :]


def _ended(text: str, said: dict[str, str], rng: Draw) -> str:
    if text[-1:] in "?.!":
        return text[:-1] if rng.random() < 0.25 else text
    if text.endswith("}"):
        return text + ("." if rng.random() < 0.12 and not _is_loose(text, said) else "")
    return text + (rng.choice([".", ".", "!", ""]) if text[-1:].isalnum() and rng.random() < 0.35 else "")
