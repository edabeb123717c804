"""Whole dialogues of every kind, in the shares in which they are trained on."""

from collections.abc import Callable

from training.calling import again, lookup, recall, session, several, single
from training.chains import chain, relay
from training.making import Dialogue, Maker, lines
from training.requests import ask
from training.sourced import sourced
from training.spoken_chains import errand
from training.talking import about, part_of, talking
from training.troubles import asking, failing, injected, refusing

__all__ = ["Dialogue", "Maker", "dialogue"]

MIX: tuple[tuple[Callable[[Maker], Dialogue], float], ...] = (
    (single, 28),
    (session, 22),
    (several, 11),
    (chain, 7),
    (again, 5),
    (lookup, 2),
    (relay, 5),
    (recall, 1),
    (sourced, 6),
    (errand, 6),
    (failing, 11),
    (talking, 13),
    (refusing, 6.5),
    (asking, 2),
    (injected, 4),
    (about, 1),
)


def dialogue(maker: Maker) -> Dialogue:
    """A dialogue of some kind; now and then something was said before."""
    make_one = maker.rng.choices([kind for kind, _ in MIX], [share for _, share in MIX])[0]
    try:
        talk = make_one(maker)
    except (ArithmeticError, ValueError):  # a sum may have no value with other numbers in it
        return dialogue(maker)
    if maker.rng.random() < 0.16 and talk.kind in {"single", "several", "talk", "refuse"}:
        _preface(talk, maker)
    return talk


def _preface(talk: Dialogue, maker: Maker) -> None:
    """Something that was settled before, with the same tools."""
    able = [made for made in talk.tools if made.family.frames and not made.family.held]
    before = Dialogue("before", talk.tools)
    if able and maker.rng.random() < 0.6:
        made = maker.rng.choice(able)
        asked = ask(made.family, maker.rng, held=False)
        if asked.need <= made.inputs.keys():
            maker.round(before, asked, made)
    else:
        said, answer = maker.rng.choice(part_of(lines("talk"), held=False)).split(" => ")
        before.user(said)
        before.says(answer)
    talk.messages[:0] = before.messages
