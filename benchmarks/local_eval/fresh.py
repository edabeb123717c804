"""A fresh process that asks once: how long until the first call and the answer, and how much memory at most.

python -m benchmarks.local_eval.fresh MODEL BEGAN
"""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.local_eval.asking import Conversation
from benchmarks.local_eval.models import open_spec
from benchmarks.local_eval.rows import sample, sessions

SIZE = 15


def fresh_figures(spec: str) -> dict[str, float]:
    """Seconds until the first reply and the answer, and the most memory in MiB, of a process that does just that."""
    command = [sys.executable, "-m", __name__, spec, str(time.time())]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


async def _figures(spec: str, began: float) -> dict[str, float]:
    session = next(one for one in sessions(sample(), SIZE) if one.rows[0].steps)
    model = open_spec(spec)
    tools = session.offered(SIZE)
    ready = time.time()
    first = await Conversation(model, session.rows[0], tools).play()
    answered = time.time()
    for row in session.rows[1:]:
        await Conversation(model, row, tools).play()
    reply_s = ready - began + first.seconds[0]
    return {"reply_s": reply_s, "answer_s": answered - began, "peak_mib": _peak_mib()}


def _peak_mib() -> float:
    """The most memory this program took. What `getrusage` tells begins with what its parent took."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_figures(sys.argv[1], float(sys.argv[2])))))
