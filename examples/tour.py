"""A short tour: the embedded model, live, with real tools. No key, no server, no account."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "tour"
STOPS = (
    (
        "A word problem: the model finds the numbers, the calculator computes.",
        "I have 3 boxes with 12 eggs each. How many eggs?",
    ),
    ("Two wishes: two calls at once.", "Draw a random number between 1 and 6, and read shopping.txt"),
    ("A chain: the second call needs the first one's result.", "First read tent.txt. Then multiply the price by 3."),
    ("A call that the policy forbids: it is judged before it runs.", "Show me secrets.txt"),
)


def main() -> int:
    """Put every question to `toolwire ask` in a folder of its own, and say where the record is."""
    folder = Path(tempfile.mkdtemp(prefix="toolwire-tour-")) / "project"
    shutil.copytree(HERE, folder)
    toolwire = Path(sys.executable).with_name("toolwire")
    for number, (about, question) in enumerate(STOPS, 1):
        print(f"\n{number}. {about}", flush=True)
        done = subprocess.run([toolwire, "ask", question], cwd=folder, check=False)  # noqa: S603 (our own words)
        if done.returncode:
            return done.returncode
    print(f"\nEverything is on record. Look at it:  cd {folder} && {toolwire} logs")
    print(f"Ask something of your own:            {toolwire} ask 'What is 15% of 80?'")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
