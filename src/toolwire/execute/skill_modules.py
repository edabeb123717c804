"""Runs a module that exports `execute(input, context)`, as the tool standard has it, in Python or JavaScript.

The module is imported in a box of its own and called once. What it returns is the output. What it prints while it works
goes to standard error, so that it cannot be taken for the output. What it raises is the reason of a failure.
"""

from pathlib import PurePosixPath
from typing import Any

from toolwire.protocol.context import Context

_PYTHON = """
import asyncio, importlib.util, inspect, json, os, sys
given = json.load(sys.stdin)
output = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
path = sys.argv[1]
sys.path.insert(0, os.path.dirname(path))
sys.dont_write_bytecode = True
async def run():
    spec = importlib.util.spec_from_file_location("skill_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "execute", None)):
        raise TypeError("the module exports no function execute(input, context)")
    value = module.execute(given["input"], given["context"])
    return await value if inspect.isawaitable(value) else value
try:
    text = json.dumps(asyncio.run(run()), allow_nan=False)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
output.write(text)
output.close()
"""

# A .js file may be an ES module without a package.json that says so: it is then imported by its text.
_JAVASCRIPT = """
const fs = require("fs"), url = require("url");
const given = JSON.parse(fs.readFileSync(0, "utf8")), path = process.argv[1];
for (const name of ["log", "info", "debug"]) console[name] = console.error;
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write.bind(process.stderr);
const imported = () => import(url.pathToFileURL(path)).catch((error) => {
  if (!(error instanceof SyntaxError) || !path.endsWith(".js")) throw error;
  return import("data:text/javascript;base64," + fs.readFileSync(path).toString("base64"));
});
(async () => {
  const module = await imported(), found = module.execute || (module.default && module.default.execute);
  if (typeof found !== "function") throw new TypeError("the module exports no function execute(input, context)");
  const value = await found(given.input, given.context);
  write(JSON.stringify(value === undefined ? null : value), () => process.exit(0));
})().catch((error) => { console.error(String(error)); process.exit(1); });
"""


def module_command(path: str) -> tuple[str, ...]:
    """The words that call the module at this path; it reads `{"input": …, "context": …}` from standard input."""
    if PurePosixPath(path).suffix == ".py":
        return ("/usr/bin/env", "python3", "-c", _PYTHON, path)
    return ("/usr/bin/env", "node", "-e", _JAVASCRIPT, path)


def module_context(context: Context) -> dict[str, Any]:
    """What a module may know about its call."""
    return {
        "call_id": context.call_id,
        "turn_id": context.turn_id,
        "session": context.thread,
        "project": context.project,
        "agent": context.agent,
        "attempt": context.attempt,
        "timeout_s": context.timeout_s,
        "idempotency_key": context.idempotency_key,
        "config": dict(context.config or {}),
    }
