"""The rules about paths that a tool itself holds to, on the file that it really opens. Pure.

A judgement before the call sees how a path is written. What it leads to is known when the file is open, so the tools
that open files ask here once more.
"""

from collections.abc import Iterable

from msgspec import Struct

from toolwire.decide.families import SHOWING, RuleReach, reach
from toolwire.decide.paths import may_hold, path_fits
from toolwire.protocol.key_files import holds_keys
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Grant

KEYS = Rule(Verdict.ASK, SHOWING, argument="path", reason="It usually holds keys or passwords")
"""The rule that holds without being written."""


class PathRules(Struct, frozen=True):
    """The rules that deny or ask about some use of files. `named` are the paths that were judged with the call.

    Where it `guards_keys`, files that usually hold keys are only shown to a call that names one of them: then it was
    approved, or allowed by a rule.
    """

    rules: tuple[Rule, ...]
    roots: tuple[str, ...]
    named: tuple[str, ...] = ()
    guards_keys: bool = False

    @classmethod
    def of(cls, grant: Grant, about: RuleReach, named: Iterable[str] = ()) -> "PathRules":
        spoken = (rule for rule in grant.rules if rule.verdict is not Verdict.ALLOW and reach(rule) & about)
        paths = tuple(named)
        guards = bool(about & RuleReach.CONTENT) and not any(map(holds_keys, paths)) and not _shows_anything(grant)
        return cls(tuple(spoken), grant.roots, paths, guards)

    def __bool__(self) -> bool:
        return bool(self.rules) or self.guards_keys

    def against(self, path: str) -> Rule | None:
        """The rule that keeps this file from the call. One that asks was answered where the call named such a path."""
        found = next((rule for rule in self.rules if self._means(rule, path) and not self._was_asked(rule)), None)
        return KEYS if found is None and self.guards_keys and holds_keys(path) else found

    def denial(self, path: str) -> Rule | None:
        """The rule under which not even the name of this file is shown."""
        return next((rule for rule in self.rules if rule.verdict is Verdict.DENY and self._means(rule, path)), None)

    def against_folder(self, path: str) -> Rule | None:
        """The rule that keeps this folder from the call, because it or something in it may be meant."""
        held = (rule for rule in self.rules if may_hold(path, rule.pattern, self.roots))
        return next((rule for rule in held if not self._was_asked(rule)), None)

    def _means(self, rule: Rule, path: str) -> bool:
        return path_fits(path, rule.pattern, self.roots)

    def _was_asked(self, rule: Rule) -> bool:
        return rule.verdict is Verdict.ASK and any(self._means(rule, path) for path in self.named)


def _shows_anything(grant: Grant) -> bool:
    """Whether the grant has confirmed all that tools do, or allows what shows files whatever they are."""
    allows = (rule for rule in grant.rules if rule.verdict is Verdict.ALLOW and not rule.argument)
    return "*" in grant.confirmed or any(rule.tools & SHOWING or rule.permission == "file_read" for rule in allows)
