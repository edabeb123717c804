"""SKILL.md: a name and a description between lines of `---`, and then instructions for the model."""

import re

from toolwire.define.tables import hides_something
from toolwire.errors import DefinitionError
from toolwire.protocol.skills import Skill

LARGEST_PAGE = 256 * 1024
LONGEST_DESCRIPTION = 1_024
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?")
_FENCE = "---"


def skill_from_page(content: bytes, file: str, folder: str) -> Skill:
    """The skill of a SKILL.md; without a name it has that of its folder. Raises `DefinitionError` with the file."""
    if len(content) > LARGEST_PAGE:
        raise DefinitionError(f"{file} is larger than {LARGEST_PAGE // 1024} KiB")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise DefinitionError(f"{file} is not UTF-8 text") from None
    end = next((place for place, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if not lines or lines[0].rstrip() != _FENCE or end is None:
        raise DefinitionError(f"{file} must begin with its name and description between two lines of ---")
    head = _front_matter(lines[1:end])
    return Skill(
        _name(head.get("name", folder), file),
        _description(head.get("description", ""), file),
        instructions="\n".join(lines[end + 1 :]).strip(),
    )


def _front_matter(lines: list[str]) -> dict[str, str]:
    """The texts at the top level of some YAML. What is nested belongs to other programs and is passed over."""
    found: dict[str, str] = {}
    place = 0
    while place < len(lines):
        key, colon, value = lines[place].partition(":")
        place += 1
        if not colon or not key or key[0] in " \t#-":
            continue
        block = []
        while place < len(lines) and (not lines[place].strip() or lines[place][0] in " \t"):
            block.append(lines[place].strip())
            place += 1
        found[key.strip()] = _scalar(value.strip(), block)
    return found


def _scalar(value: str, block: list[str]) -> str:
    """A text as YAML writes it: plain over several lines, in quotes, folded by `>`, or kept as it is by `|`."""
    if value[:1] in {"|", ">"} and len(value) <= 3:
        return ("\n" if value[0] == "|" else " ").join(block).strip()
    value = " ".join([value, *filter(None, block)])
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return value.partition(" #")[0].rstrip()


def _name(name: str, file: str) -> str:
    if not _NAME.fullmatch(name):
        raise DefinitionError(f"{file}: name is 1 to 64 lowercase letters, digits and hyphens, not {name[:60]!r}")
    return name


def _description(text: str, file: str) -> str:
    if not text:
        raise DefinitionError(f"{file}: description is missing; say what the skill is for and when to use it")
    if len(text) > LONGEST_DESCRIPTION:
        raise DefinitionError(f"{file}: description has more than {LONGEST_DESCRIPTION} characters")
    if hides_something(text):
        raise DefinitionError(f"{file}: description has invisible characters")
    return text
