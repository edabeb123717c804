"""The rules about addresses that tools hold to on their way: on every redirect, and on what a page asks for. Pure."""

from collections.abc import Collection

from msgspec import Struct

from toolwire.decide.addresses import address_fits
from toolwire.decide.families import RuleReach, reach
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Grant

_SOME_PATHS = ("", "-", "-/-?-")


class AddressRules(Struct, frozen=True):
    """The rules of a grant that deny or ask about pages of the web."""

    rules: tuple[Rule, ...] = ()

    @classmethod
    def of(cls, grant: Grant) -> "AddressRules":
        spoken = (rule for rule in grant.rules if rule.verdict is not Verdict.ALLOW and RuleReach.PAGES in reach(rule))
        return cls(tuple(spoken))

    def denying(self) -> "AddressRules":
        """Those of them that deny."""
        return AddressRules(tuple(rule for rule in self.rules if rule.verdict is Verdict.DENY))

    def asked_about(self, url: str) -> frozenset[Rule]:
        """The rules that were asked about, and answered, when a call names this address."""
        return frozenset(rule for rule in self.rules if rule.verdict is Verdict.ASK and address_fits(url, rule.pattern))

    def refusal_unseen(self, url: str) -> str:
        """Like `refusal`, but of a host alone, whether a rule means any page of it: in TLS pages are not seen."""
        if url.partition("://")[2].count("/"):
            return self.refusal(url)
        for rule in self.rules:
            if any(address_fits(f"{url}{path}", rule.pattern) for path in _paths_meant(rule.pattern)):
                said = "denies" if rule.verdict is Verdict.DENY else "asks about"
                return f"a rule {said} pages of {url[:300]}, and which page is meant cannot be seen ({rule})"
        return ""

    def refusal(self, url: str, answered: Collection[Rule] = ()) -> str:
        """Why this address may not be fetched; nothing where it may. Of a host alone, whether all of it is meant."""
        whole = url if url.partition("://")[2].count("/") else ""
        for rule in self.rules:
            paths = (url,) if whole else tuple(f"{url}/{path}" for path in _SOME_PATHS)
            if rule not in answered and all(address_fits(path, rule.pattern) for path in paths):
                said = "denies" if rule.verdict is Verdict.DENY else "asks about"
                again = "" if rule.verdict is Verdict.DENY else "; call the tool with that address"
                return f"a rule {said} {url[:300]} ({rule}){again}"
        return ""


def _paths_meant(pattern: str) -> tuple[str, ...]:
    """Some paths that fit a pattern where the host does."""
    some = pattern.replace("*", "-").replace("?", "-")
    _, slash, path = some.partition("://")[2].partition("/")
    return ("", "/-", f"/{path}" if slash else "", f"/{some}")
