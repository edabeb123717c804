"""What the operator's rules say about a call. Pure; the order of the rules does not matter.

Deny is final, asking wins over allowing, and where no rule speaks the grant's autonomy does. Reading a rule against a
call is strict in the direction that is safe: what denies or asks matches generously, what allows matches exactly.
"""

from collections.abc import Iterable, Mapping, Sequence
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.decide.families import SHELL_ARGUMENT, shows_key_files
from toolwire.decide.fit import RuleMatch
from toolwire.decide.shell_words import UNKNOWN, base_name
from toolwire.lazy import lazy_module
from toolwire.protocol.policy import Autonomy, Rule, Verdict
from toolwire.protocol.tools import LIMIT, Effect, Grant, Tier, Tool

if TYPE_CHECKING:
    from toolwire.decide import git_words, loopback, matching, pinned, shell, trying
else:
    # Loaded for rules and for shell commands.
    git_words = lazy_module("toolwire.decide.git_words")
    loopback = lazy_module("toolwire.decide.loopback")
    matching = lazy_module("toolwire.decide.matching")
    pinned = lazy_module("toolwire.decide.pinned")
    shell = lazy_module("toolwire.decide.shell")
    trying = lazy_module("toolwire.decide.trying")

SHELL, FILE_READ = "shell", "file_read"

# Commands that no policy means to allow by being silent about them. A hint: the sandbox is what holds.
_RUINOUS = frozenset("mkfs shutdown reboot halt poweroff fdisk parted wipefs".split())
_WHOLE_DISK = {"/", f"/{UNKNOWN}", "/."}
_ABOUT_ITSELF = frozenset("--version -V --help".split())
_WANTS_NETWORK = frozenset("curl wget nc ncat netcat ssh scp sftp rsync ftp telnet ping dig nslookup host".split())


class Ruling(Struct, frozen=True):
    """What is to be done with a call, and why: the rule's own words, or those of the grant's autonomy.

    `wary` says that it is for untrusted content. A call that `tries` is first run where it changes and reaches nothing;
    only if that is not enough for it does the verdict count.
    """

    verdict: Verdict
    sentence: str
    rule: Rule | None = None
    wary: bool = False
    tries: bool = False


# An enum's member is looked up anew each time it is named, and every call comes through the first lines of `ruling`.
_PURE, _RUN, _READONLY = Effect.PURE, Tier.RUN, Autonomy.READONLY
_CONFIRMED = Ruling(Verdict.ALLOW, "The grant has confirmed it.")
_LOOKS = Ruling(Verdict.ALLOW, "Every command in it only reads, in a box where nothing can be written (only reads).")
_FREE = Ruling(Verdict.ALLOW, "It may run without asking.")


def allows_any(tool: Tool, grant: Grant) -> bool:
    """Whether every call of a tool may run, whatever its arguments are, as long as nothing untrusted was read.

    It holds where `ruling` looks neither at the arguments nor at any rule.
    """
    if grant.rules or tool.requires_confirmation or tool.must_ask is not None or FILE_READ in tool.needs:
        return False
    return tool.effect is _PURE or (tool.tier is not _RUN and not tool.needs and grant.autonomy is not _READONLY)


def ruling(tool: Tool, arguments: Mapping[str, Any], grant: Grant, *, tainted: bool = False) -> Ruling:
    """The one ruling about a call whose tier, permissions and arguments are in order.

    In a `tainted` turn a wary grant has people asked before anything goes out or changes, whatever else is allowed.
    """
    shows_keys = FILE_READ in tool.needs and shows_key_files(tool.name, arguments)
    if not grant.rules and not tool.requires_confirmation and not shows_keys and tool.must_ask is None:
        if tool.effect is _PURE:
            return _FREE
        if tool.tier is not _RUN and not tainted and not tool.needs and grant.autonomy is not _READONLY:
            return _FREE
    plain = SHELL not in tool.needs and tool.must_ask is None
    if plain and not tainted and not grant.rules and grant.autonomy is not Autonomy.READONLY:
        return _by_autonomy(tool, grant, shows_keys=shows_keys)
    reading = _reading(tool, arguments)
    looks = tool.reading_box and reading is not None and trying.only_looks(arguments[SHELL_ARGUMENT])
    tries = _may_try(tool, arguments, reading, grant) and not looks
    readonly = grant.autonomy is Autonomy.READONLY and tool.effect is not Effect.PURE and not looks
    if readonly and not tries:
        return Ruling(Verdict.DENY, f"{tool.name!r} changes things, and this turn may only look.")
    if reading is not None and (ruin := _ruin(reading)):
        return Ruling(Verdict.DENY, f"{ruin!r} would ruin the machine; it is never run.")
    if reading is not None and (missing := _missing(reading, grant, boxed=tool.sandbox != "none")):
        return Ruling(Verdict.DENY, f"{missing!r} needs network, which this turn does not have.")
    if (forbidding := _forbidding(tool, arguments, grant, reading)) is not None:
        return forbidding
    if looks and not tool.requires_confirmation:
        return _LOOKS
    if readonly:
        return Ruling(Verdict.DENY, f"{tool.name!r} wanted to change things, and this turn may only look.", tries=True)
    wary = tainted and grant.wary
    ruled = _by_taint_or_autonomy(tool, arguments, grant, reading, wary=wary, shows_keys=shows_keys)
    return replace(ruled, tries=True) if tries and ruled.verdict is Verdict.ASK else ruled


def _by_taint_or_autonomy(
    tool: Tool,
    arguments: Mapping[str, Any],
    grant: Grant,
    reading: "shell.Reading | None",
    *,
    wary: bool,
    shows_keys: bool,
) -> Ruling:
    """The ruling about a call that no rule forbids."""
    if tool.must_ask is not None and (why := tool.must_ask(arguments, grant.roots)):
        return _by_name(tool, arguments, grant, why, wary=wary)
    if wary and tool.effect is not Effect.PURE and (tool.tier is Tier.RUN or "network" in tool.needs):
        sentence = f"This turn has read untrusted content, and {tool.name!r} has side effects."
        return Ruling(Verdict.ASK, sentence, wary=True)
    allows = [rule for rule in grant.rules if rule.verdict is Verdict.ALLOW and matching.concerns(rule, tool)]
    if (allowing := _allowing(allows, arguments, reading)) is not None:
        return Ruling(Verdict.ALLOW, _said(allowing), allowing)
    return _by_autonomy(tool, grant, shows_keys=shows_keys)


def _by_name(tool: Tool, arguments: Mapping[str, Any], grant: Grant, why: str, *, wary: bool) -> Ruling:
    """About a call that must be approved whatever is confirmed: only a rule that names the thing itself allows it."""
    if wary:
        return Ruling(Verdict.ASK, why, wary=True)
    for rule in grant.rules:
        if rule.verdict is Verdict.ALLOW and rule.argument and matching.concerns(rule, tool):
            names_it = tool.must_ask is not None and tool.must_ask({rule.argument: rule.pattern}, grant.roots)
            if names_it and _allowing([rule], arguments, None) is not None:
                return Ruling(Verdict.ALLOW, _said(rule), rule)
    return Ruling(Verdict.ASK, why)


def allowed_by(rules: Iterable[Rule], tool: Tool, arguments: Mapping[str, Any]) -> Rule | None:
    """The rule, of rules that allow, under which this call needs no asking; every command of a text needs one."""
    return _allowing((rule for rule in rules if matching.concerns(rule, tool)), arguments, _reading(tool, arguments))


def narrow_grant(grant: Grant, own: Grant) -> Grant:
    """What a sub-agent may do: what both grants allow, never more than either."""
    both = frozenset(grant.rules) & frozenset(own.rules)
    every = dict.fromkeys((*grant.rules, *own.rules))
    return Grant(
        tier=min(grant.tier, own.tier),
        permissions=grant.permissions & own.permissions,
        roots=_shared_roots(grant.roots, own.roots),
        network=_shared_hosts(grant.network, own.network),
        platform=grant.platform,
        confirmed=_shared_names(grant.confirmed, own.confirmed),
        max_calls=min(grant.max_calls, own.max_calls),
        autonomy=min(grant.autonomy, own.autonomy),
        rules=tuple(rule for rule in every if rule.verdict is not Verdict.ALLOW or rule in both),
        wary=grant.wary or own.wary,
    )


def grant_of_resumed(grant: Grant, now: Grant) -> Grant:
    """What a turn on record may still do: what its own grant and the one of now allow, never more than either.

    A folder is kept whole or not at all: beneath a narrower one a relative path would mean another file.
    """
    roots = tuple(root for root in grant.roots if any(_within(root, one) for one in now.roots))
    return replace(narrow_grant(grant, now), roots=roots)


def _may_try(tool: Tool, arguments: Mapping[str, Any], reading: "shell.Reading | None", grant: Grant) -> bool:
    """Whether a call may be run where it changes and reaches nothing, before anybody is asked about it."""
    if reading is None or not tool.trial_box or tool.requires_confirmation:
        return False
    return trying.may_be_tried(arguments[SHELL_ARGUMENT], reaches="network" in grant.permissions)


def _by_autonomy(tool: Tool, grant: Grant, *, shows_keys: bool = False) -> Ruling:
    if tool.name in grant.confirmed or "*" in grant.confirmed:
        return _CONFIRMED
    if shows_keys:
        return Ruling(Verdict.ASK, f"{tool.name!r} would show a file that usually holds keys or passwords.")
    if tool.requires_confirmation:
        return Ruling(Verdict.ASK, f"{tool.name!r} asks for a person's confirmation before it runs.")
    if grant.autonomy is not Autonomy.FULL and tool.tier is Tier.RUN and tool.effect is not Effect.PURE:
        return Ruling(Verdict.ASK, f"{tool.name!r} changes things, so a person is asked before it runs.")
    return _FREE


def _reading(tool: Tool, arguments: Mapping[str, Any]) -> "shell.Reading | None":
    command = arguments.get(SHELL_ARGUMENT)
    return shell.read_shell(command) if SHELL in tool.needs and isinstance(command, str) else None


def _forbidding(
    tool: Tool, arguments: Mapping[str, Any], grant: Grant, reading: "shell.Reading | None"
) -> Ruling | None:
    """What the rules that deny or ask say. Of several that ask, the one that wants the most people counts."""
    found: dict[Verdict, list[tuple[Rule, RuleMatch]]] = {Verdict.DENY: [], Verdict.ASK: []}
    for rule in grant.rules:
        fit = (
            RuleMatch.NO
            if rule.verdict is Verdict.ALLOW
            else matching.match_rule(rule, tool, arguments, reading, grant)
        )
        if fit is not RuleMatch.NO:
            found[rule.verdict if fit is RuleMatch.YES else Verdict.ASK].append((rule, fit))
    for verdict, rules in found.items():
        if rules:
            rule, fit = max(rules, key=lambda one: (one[0].quorum, one[1], str(one[0])))
            return Ruling(verdict, _said(rule) if fit is RuleMatch.YES else _doubted(rule, reading), rule)
    return None


def _allowing(rules: Iterable[Rule], arguments: Mapping[str, Any], reading: "shell.Reading | None") -> Rule | None:
    """The rule under which a call needs no asking; of a shell text, every command must be allowed by some rule."""
    spoken = list(rules)
    for rule in spoken:
        if not rule.argument:
            return rule
        value = arguments.get(rule.argument)
        if reading is None and isinstance(value, str) and matching.exactly(value, rule.pattern):
            return rule
    for_shell = [rule for rule in spoken if rule.argument == SHELL_ARGUMENT]
    if reading is None or not reading.sure or reading.written or not reading.commands or not for_shell:
        return None
    used = [next((rule for rule in for_shell if _covers(rule, words)), None) for words in reading.commands]
    return None if None in used else used[0]


def _covers(rule: Rule, words: Sequence[str]) -> bool:
    """Whether a rule that allows means a command: its beginning and, of one that runs others, also what it runs."""
    if not matching.begins(words, rule.pattern):
        return False
    return not shell.runs_others(words[0]) or (
        "*" not in rule.pattern and pinned.names_program(words, len(rule.pattern.split()))
    )


def _ruin(reading: "shell.Reading") -> str:
    for name, *rest in reading.commands:
        if _is_ruinous(base_name(name), rest):
            return " ".join((base_name(name), *rest)).replace(UNKNOWN, "…")
    return ""


def _is_ruinous(name: str, words: list[str]) -> bool:
    if name == "dd":
        return any(word.startswith("of=/dev/") for word in words)
    if name in {"rm", "chmod", "chown"}:
        options = "".join(word for word in words if word.startswith("-"))
        return ("r" in options.lower()) and not _WHOLE_DISK.isdisjoint(words)
    return name.partition(".")[0] in _RUINOUS


def _missing(reading: "shell.Reading", grant: Grant, *, boxed: bool) -> str:
    """The first command that needs the network. In a box, what talks to loopback talks to the box itself."""
    if "network" in grant.permissions:
        return ""
    for words in reading.commands:
        name = words[0]
        if _tells_of_itself(words) or (boxed and loopback.stays_in_box(words)):
            continue
        if base_name(name) in _WANTS_NETWORK or (base_name(name) == "git" and git_words.needs_network(words)):
            return base_name(name)
    return ""


def _tells_of_itself(words: Sequence[str]) -> bool:
    """Whether a network command is only asked for its version or help, or copies from one local folder to another."""
    if base_name(words[0]) == "rsync" and not any(":" in word or UNKNOWN in word for word in words[1:]):
        return True
    return bool(words[1:]) and _ABOUT_ITSELF.issuperset(words[1:])


def _said(rule: Rule) -> str:
    return f"{rule.reason or 'The policy says so'} ({rule})."


def _doubted(rule: Rule, reading: "shell.Reading | None") -> str:
    why = f": {reading.doubt}" if reading is not None and reading.doubt else ""
    return f"It cannot be told whether a rule means it{why} ({rule})."


def _shared_roots(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    inner = [one for one in others if any(_within(one, root) for root in some)]
    return tuple(dict.fromkeys([*inner, *(root for root in some if any(_within(root, one) for one in others))]))


def _shared_hosts(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """The hosts that both name, and everything that either of them closes."""
    closed = [host for host in (*some, *others) if host.startswith(("!", LIMIT))]
    return tuple(dict.fromkeys([*(host for host in others if host in some), *closed]))


def _within(path: str, root: str) -> bool:
    return f"{normpath(path)}/".startswith(f"{normpath(root).rstrip('/')}/")


def _shared_names(some: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    if "*" in some:
        return others
    return some if "*" in others else some & others
