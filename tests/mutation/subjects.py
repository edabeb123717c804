"""What is mutated, and the tests that concern it."""

import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.mutation import tables
from tests.mutation.tables import SOURCE

_HUB_PARTS = ("tests/loop/test_hub_parts.py",)
_AGENT = ("tests/loop/test_agent.py", "tests/loop/test_approvals.py")
_LOOP = (*_AGENT, *(f"tests/loop/test_{name}.py" for name in ("step", "step_edges", "too_many_calls", "taint")))
_JOURNEY = ("tests/loop/test_journey_parts.py",)

TESTS: dict[str, Sequence[str]] = {
    "loop.step": tuple(f"tests/loop/test_{name}.py" for name in ("step", "step_edges", "step_endings")),
    "decide": ("tests/decide", *_AGENT, "tests/loop/test_patterns.py"),
    "decide.ladder": ("tests/decide/test_ladder.py", "tests/decide/test_ladder_sentences.py"),
    "decide.policy": tuple(
        f"tests/decide/test_{name}.py"
        for name in ("policy", "policy_edges", "policy_sentences", "trying", "held_rules", "ladder", "patterns")
    ),
    "decide.shell_globs": ("tests/decide/test_shell_globs.py", "tests/decide/test_rule_spellings.py"),
    "decide.shell_reach": ("tests/decide/test_shell_reach.py", "tests/decide/test_rule_spellings.py"),
    "decide.shell_syntax": ("tests/decide/test_shell_syntax.py", "tests/decide/test_shell.py"),
    "record.ledger": ("tests/record/test_ledger.py",),
    "record.lock_queue": ("tests/record/test_lock_queue.py",),
    "record.reserving": ("tests/record/test_reserving.py",),
    "record.lease_rows": ("tests/record/test_lease_rows.py",),
    "record.owners": ("tests/record/test_owner_files.py",),
    "record": ("tests/record",),
    "hub.calls": _HUB_PARTS,
    "hub.slots": _HUB_PARTS,
    "hub.canceling": (*_HUB_PARTS, "tests/loop/test_canceling_parts.py"),
    "hub.resuming": _HUB_PARTS,
    "hub.judging": (*_HUB_PARTS, "tests/loop/test_judging_parts.py"),
    "hub.event_hub": (*_HUB_PARTS, "tests/loop/test_event_hub.py"),
    "hub.detached": ("tests/loop/test_hub_services.py",),
    "hub.shown_output": ("tests/loop/test_hub_services.py",),
    "hub.submitting": ("tests/loop/test_submitted_results.py",),
    "hub.services": ("tests/loop/test_hub_services.py",),
    "hub.allowance": ("tests/loop/test_allowance_parts.py",),
    "hub.approvals": (*_AGENT, "tests/loop/test_approval_parts.py", "tests/loop/test_patterns.py"),
    "hub.approved_files": ("tests/loop/test_approval_parts.py",),
    "hub.claimed": ("tests/loop/test_claimed_parts.py",),
    "hub.journey": _JOURNEY,
    "hub.provenance": ("tests/loop/test_provenance_parts.py",),
    "hub.results": (
        *("tests/loop/test_result_parts.py", "tests/deliver/test_results.py"),
        *("tests/envelope/test_results_in_envelopes.py", "tests/execute/test_promised_outputs.py"),
    ),
    "hub.shared_locks": ("tests/loop/test_lock_parts.py",),
    "hub.runtime": ("tests/loop/test_runtime_parts.py", *_JOURNEY),
    "hub.turn_loop": ("tests/loop/test_turn_loop_parts.py", "tests/loop/test_compaction.py"),
    "hub": (*_LOOP, "tests/loop/test_budgets.py", "tests/execute"),
}
"""The tests for a module, or for all modules of a package that are not named by themselves."""

STALE = "stale"
"""Stands for the modules that have changed since they were measured."""

DEFAULT = ("loop.step", "decide", "record.ledger", "hub")


def modules(names: Iterable[str]) -> list[str]:
    """The modules that these names stand for: a package stands for all of its modules."""
    return list(dict.fromkeys(module for name in names for module in _modules(name)))


def _modules(name: str) -> list[str]:
    if name == STALE:
        return tables.stale_modules()
    folder = SOURCE.joinpath(*name.split("."))
    if not folder.is_dir():
        if not folder.with_suffix(".py").exists():
            raise SystemExit(f"no module toolwire.{name}; name one as in decide.ladder, or a package as in decide")
        return [name]
    return [inner for found in pkgutil.iter_modules([str(folder)]) for inner in _modules(f"{name}.{found.name}")]


def tests_of(module: str) -> Sequence[str]:
    """The tests of the longest name in the table that the module has, or belongs to."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        if found := TESTS.get(".".join(parts[:end])):
            return found
    raise SystemExit(f"no tests are known for toolwire.{module}; name them with --tests")


def by_tests(names: Iterable[str], chosen: Sequence[str]) -> dict[tuple[str, ...], list[str]]:
    """The modules grouped by their tests, so that these are collected and traced once."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for module in modules(names):
        found[tuple(chosen or tests_of(module))].append(module)
    return dict(found)
