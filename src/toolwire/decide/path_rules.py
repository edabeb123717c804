"""The rules about paths that a tool itself holds to, on the file that it really opens. Pure.

A judgement before the call sees how a path is written. What it leads to is known when the file is open, so the tools
that open files ask here once more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from toolwire.decide.families import Reach, reach
from toolwire.decide.paths import may_hold, path_fits
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Grant


@dataclass(frozen=True, slots=True)
class PathRules:
    """The rules that deny or ask about some use of files. `named` are the paths that were judged with the call."""

    rules: tuple[Rule, ...]
    roots: tuple[str, ...]
    named: tuple[str, ...] = ()

    @classmethod
    def of(cls, grant: Grant, about: Reach, named: Iterable[str] = ()) -> "PathRules":
        spoken = (rule for rule in grant.rules if rule.verdict is not Verdict.ALLOW and reach(rule) & about)
        return cls(tuple(spoken), grant.roots, tuple(named))

    def against(self, path: str) -> Rule | None:
        """The rule that keeps this file from the call. One that asks was answered where the call named such a path."""
        return next((rule for rule in self.rules if self._means(rule, path) and not self._was_asked(rule)), None)

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
