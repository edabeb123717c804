"""The tour that `make demo` gives, as a newcomer sees it."""

import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).parents[2] / "examples" / "tour.py"
PATIENCE_S = 300  # the machine may be busy; a bound, not an expectation


def test_the_tour_computes_calls_twice_chains_and_is_refused() -> None:
    done = subprocess.run([sys.executable, str(TOUR)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    word_problem, two_calls, chain, refused = _stops(done)
    assert "36" in word_problem
    assert "shopping.txt" in two_calls
    assert "387" in chain
    assert "deny read where path is *secret*" in refused
    assert "4711" not in done.stdout + done.stderr


def _stops(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What was said at each stop: answers are on standard output, between the numbered lines."""
    parts = done.stdout.split("\n\n")
    return [part for part in parts if part.strip()[:2] in {"1.", "2.", "3.", "4."}]
