"""Skills to try, written to disk as their authors would."""

from pathlib import Path

from toolwire.toolbox.skills.catalog import FoundSkill, Skills, read_skill, scan

GREET = """#!/usr/bin/python3
import json, sys
given = json.load(sys.stdin)
if given["name"] == "nobody":
    sys.exit("there is nobody to greet")
print(json.dumps({"greeting": f"Hello, {given['name']}!"}))
"""
GREET_TOML = """
version = "VERSION"
[[tools]]
name = "greet"
binary = "bin/greet"
description = "Greet somebody by name."
[tools.parameters]
name = { type = "string", description = "Who is greeted." }
[tools.output_schema]
type = "object"
required = ["greeting"]
properties.greeting = { type = "string", description = "What to say." }
[[tools.examples]]
explanation = "output.greeting is the text to show."
input = { name = "Ada" }
output = { greeting = "Hello, Ada!" }
[[tools.tests]]
name = "somebody"
input = { name = "Ada" }
output = { greeting = "Hello, Ada!" }
[[tools.tests]]
name = "nobody"
input = { name = "nobody" }
exit_code = 1
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def program(path: Path, text: str) -> Path:
    write(path, text).chmod(0o755)
    return path


def greeter(folder: Path, version: str = "1", text: str = GREET) -> Path:
    """A skill with one tool, which greets."""
    write(folder / "skill.toml", GREET_TOML.replace("VERSION", version))
    program(folder / "bin" / "greet", text)
    return folder


def one_tool(folder: Path, script: str, *lines: str, name: str = "try-it") -> Path:
    """A skill with one tool whose program is this shell script."""
    more = "\n".join(lines)
    head = f'[[tools]]\nname = "{name}"\nbinary = "run"\ndescription = "Try something out."\n'
    write(folder / "skill.toml", f"{head}{more}\n")
    program(folder / "run", f"#!/bin/sh\n{script}\n")
    return folder


def always(_file: Path, _digest: str) -> bool:
    return True


def never(_file: Path, _digest: str) -> bool:
    return False


def trusted(folder: Path) -> FoundSkill:
    return read_skill(folder, always)


def all_trusted(folder: Path) -> Skills:
    return scan(folder, always)
