"""What a skill.toml and a SKILL.md say, and what is said about one that is wrong."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolwire.define.arguments import Checker
from toolwire.define.skill_pages import skill_from_page
from toolwire.define.skills import LONGEST_TIMEOUT_MS, TOOL_KEYS, skill_from_toml
from toolwire.define.versions import pinned_version, version_key
from toolwire.errors import DefinitionError
from toolwire.protocol.skills import ArgumentPassing, Skill, SkillTool
from toolwire.protocol.tools import Effect, Tier
from toolwire.wire.encode.openai_chat import encode_tools

FILE = "skills/pictures/skill.toml"
a_while = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
LEAST = '[[tools]]\nname = "resize"\nbinary = "bin/resize"\ndescription = "Make a picture smaller."\n'
FULL = """
name = "pictures"
version = "2.1.0"
description = "Work on pictures."
platforms = ["linux", "macos"]

[[tools]]
name = "resize"
binary = "bin/resize"
description = "Make a picture smaller."
input = "flags"
sandboxing = "podman"
timeout_ms = 5000
max_timeout_ms = 60000
permissions = ["file_read", "file_write"]
version = "2.1.7"
platforms = ["linux"]
effect = "idempotent"
tier = "run"
confirm = true

[tools.parameters]
path = { type = "string", description = "Where it is." }
width = { type = "integer", minimum = 1, description = "How wide.", default = 100 }
keep = "boolean?"

[tools.output_schema]
type = "object"
required = ["path"]
properties.path = { type = "string", description = "Where it is now." }

[[tools.examples]]
explanation = "Read output.path to know where it is."
input = { path = "a.png" }
output = { path = "a-100.png" }

[[tools.tests]]
name = "a small one"
input = { path = "a.png" }
output = { path = "a-100.png" }
files = { "a.png" = "not really" }
"""


def skill(text: str) -> Skill:
    return skill_from_toml(text.encode(), FILE, "pictures")


def only(text: str) -> SkillTool:
    [entry] = skill(text).tools
    return entry


@pytest.mark.feature("F055")
def test_three_lines_define_a_tool() -> None:
    entry = only(LEAST)
    assert (entry.tool.name, entry.tool.description, entry.tool.skill) == (
        "resize", "Make a picture smaller.", "pictures",
    )  # fmt: skip
    assert entry.program.binary("linux") == "bin/resize"
    assert entry.program.passing is ArgumentPassing.JSON


@pytest.mark.feature("F057")
def test_a_schema_is_made_from_lines_and_sent_to_models() -> None:
    [sent] = encode_tools([only(FULL).tool])
    assert sent["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where it is."},
            "width": {"type": "integer", "minimum": 1, "description": "How wide.", "default": 100},
            "keep": {"type": "boolean"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


@pytest.mark.feature("F057")
def test_a_json_schema_is_taken_as_it_is() -> None:
    text = LEAST + '[tools.parameters]\ntype = "object"\n[tools.parameters.properties.size]\nenum = ["s", "m"]\n'
    checker = Checker(only(text).tool)
    assert checker.check({"size": "s"}).ok
    assert not checker.check({"size": "xl"}).ok


def test_properties_without_a_type_are_a_json_schema_too() -> None:
    """EvoClaw writes them that way."""
    text = LEAST + '[tools.parameters]\nrequired = ["path"]\nproperties = { path = { type = "string" } }\n'
    assert only(text).tool.input_schema["required"] == ["path"]


@pytest.mark.feature("F058")
def test_everything_else_about_a_tool_can_be_said() -> None:
    entry = only(FULL)
    tool = entry.tool
    assert (tool.timeout_s, tool.max_timeout_s, tool.sandbox, tool.version) == (5.0, 60.0, "podman", "2.1.7")
    assert tool.needs == {"file_read", "file_write"}
    assert tool.platforms == {"linux"}
    assert (tool.effect, tool.tier, tool.requires_confirmation) == (Effect.IDEMPOTENT, Tier.RUN, True)
    assert (entry.program.passing, entry.program.reads, entry.program.writes) == (ArgumentPassing.FLAGS, True, True)
    assert entry.examples[0].explanation == "Read output.path to know where it is."
    assert entry.tests[0].files == {"a.png": "not really"}
    assert tool.examples == ({"path": "a.png"},)


def test_a_description_may_be_in_any_language() -> None:
    for words in ("Réduit\u00a0une image\u202f!", "می\u200cخواهم", "👩\u200d💻 画像を\u3000縮小する"):
        assert only(LEAST.replace("Make a picture smaller.", words)).tool.description == words


def test_what_a_tool_does_not_say_it_has_from_its_skill() -> None:
    text = '[skill]\nversion = "3"\nplatforms = ["windows"]\n' + LEAST
    assert only(text).tool.version == "3"
    assert only(text).tool.platforms == {"win32"}


@pytest.mark.feature("F067")
def test_a_tool_can_have_a_program_for_each_platform_and_runs_where_it_has_one() -> None:
    text = LEAST.replace('"bin/resize"', '{ linux = "bin/a", macos = "bin/b" }')
    entry = only(text)
    assert (entry.program.binary("linux"), entry.program.binary("darwin")) == ("bin/a", "bin/b")
    assert entry.tool.platforms == {"linux", "darwin"}


def test_a_tool_cannot_ask_for_a_lower_tier_than_its_permissions_call_for() -> None:
    text = LEAST + 'permissions = ["file_write"]\ntier = "crawl"\n'
    assert only(text).tool.tier is Tier.RUN


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('binary = "/bin/sh"', "binary must be a path inside the skill's folder"),
        ('binary = "../../bin/sh"', "binary must be a path inside"),
        ('binary = "bin/../../sh"', "binary must be a path inside"),
        ('binary = "~/sh"', "binary must be a path inside"),
        ('binary = "bin\\\\sh"', "binary must be a path inside"),
        ('binary = "bin/ｓh"', "binary must be a path inside"),
        ('binary = "."', "binary must be a path inside"),
        ('binary = "a\\u0000b"', "invisible characters"),
        ("binary = { linuks = 'a' }", "unknown key 'linuks'; did you mean linux?"),
        ('name = "re size"', "name is letters, digits"),
        ('name = "rеsize"', "name is letters, digits"),
        ('description = ""', "description is empty"),
        ('description = "a\\u202eb"', "invisible characters"),
        ('sandboxing = "bubblewarp"', "did you mean 'bubblewrap'?"),
        ("sandboxing = true", "must be text in quotes, not True"),
        ("timeout_ms = 99999999999", f"from 1 to {LONGEST_TIMEOUT_MS}"),
        ("timeout_ms = 0", "from 1 to"),
        ("timeout_ms = true", "from 1 to"),
        ('timeout_ms = "5"', "must be a whole number, not '5'"),
        ("timeout = 5", "unknown key 'timeout'; did you mean timeout_ms?"),
        ('permissions = ["file read"]', "permissions are words such as file_read"),
        ('permissions = [1]', "must be a list of words"),
        ('version = "latest"', "version is one to four numbers"),
        ('platforms = ["linux", "beos"]', "platforms is one of linux"),
        ('effect = "harmless"', "effect is one of pure"),
        ('input = "stdin"', "input is one of json, flags"),
        ('parameters = { path = "strin" }', "did you mean 'string'?"),
        ('parameters = { type = "object", required = 1 }', "not a valid JSON Schema"),
        ('output_schema = { type = "objekt" }', "not a valid JSON Schema"),
        ('examples = [{ inputs = {} }]', "unknown key 'inputs'; did you mean input?"),
        ('tests = [{ files = { "../a" = "" } }]', "must be a path inside the test's own workspace"),
        ('tests = "none"', "must be a list"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_the_file_and_the_key(line: str, says: str) -> None:
    key = line.partition(" ")[0]
    kept = "".join(f"{each}\n" for each in LEAST.splitlines() if not each.startswith(f"{key} "))
    with pytest.raises(DefinitionError) as wrong:
        skill(kept + line + "\n")
    assert says in str(wrong.value)
    assert str(wrong.value).startswith(f"{FILE}: tools[0]")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "tools is missing; write [[tools]] above each tool"),
        ("[tools]\nname = 'a'\n", "tools must be a list"),
        ("tols = []", "unknown key 'tols'; did you mean tools?"),
        ("[[tools]]\n", "tools[0].name is missing"),
        (LEAST + LEAST, "two tools are named 'resize' and have version 1"),
        ("a = ", "is not valid TOML"),
        ("a = " + "[" * 900 + "]" * 900, ""),
        ("a" * 3_000, "a line of more than 2000 characters"),
        ("a = 1\n" * 60_000, "is larger than 256 KiB"),
    ],
)
def test_a_file_that_is_no_skill_is_refused_with_a_sentence(text: str, says: str) -> None:
    with pytest.raises(DefinitionError) as wrong:
        skill(text)
    assert str(wrong.value).startswith(FILE)
    assert says in str(wrong.value)


def test_a_parameter_that_cannot_be_a_flag_is_refused() -> None:
    with pytest.raises(DefinitionError, match="cannot be a flag"):
        skill(LEAST + 'input = "flags"\n[tools.parameters]\n"a b" = "string"\n')


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@a_while
@given(st.dictionaries(st.sampled_from(TOOL_KEYS), _VALUES, max_size=6))
def test_any_tool_is_read_or_refused_with_a_sentence(values: dict[str, object]) -> None:
    table = {"name": "resize", "binary": "bin/resize", "description": "Make it smaller."} | values
    text = "[[tools]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())
    said = FILE
    try:
        skill(text)
    except DefinitionError as wrong:
        said = str(wrong)
    assert said.startswith(FILE)


@a_while
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_a_sentence(content: bytes) -> None:
    for read, file in ((skill_from_toml, FILE), (skill_from_page, "SKILL.md")):
        said = file
        try:
            read(content, file, "folder")
        except DefinitionError as wrong:
            said = str(wrong)
        assert said.startswith(file)


def _toml(value: object) -> str:
    match value:
        case None:
            return '""'
        case bool():
            return str(value).lower()
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{_toml(key)} = {_toml(inner)}' for key, inner in value.items())}}}"
        case str():
            return '"' + "".join(f"\\U{ord(c):08x}" if not 0xD800 <= ord(c) < 0xE000 else "" for c in value) + '"'
        case _:
            return str(value)


PAGE = b"""---
name: tidy-commits
description: >
  How to write commits here,
  step by step.
license: MIT
metadata:
  author: "someone"
---

# Tidy commits

1. Say the outcome.
"""


@pytest.mark.feature("F254")
def test_a_page_has_a_name_a_description_and_instructions() -> None:
    page = skill_from_page(PAGE, "SKILL.md", "folder")
    assert (page.name, page.description) == ("tidy-commits", "How to write commits here, step by step.")
    assert page.instructions == "# Tidy commits\n\n1. Say the outcome."


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("description: plain # a remark", "plain"),
        ("description: 'it''s'", "it's"),
        ('description: "a \\"b\\""', 'a "b"'),
        ("description: one\n  two", "one two"),
        ("description: |\n  one\n  two", "one\ntwo"),
        ("description: a: b", "a: b"),
        ("# no\ndescription: x\nallowed-tools:\n- a\n- b", "x"),
    ],
)
def test_descriptions_are_read_as_yaml_writes_them(written: str, meant: str) -> None:
    assert skill_from_page(f"---\n{written}\n---\nGo.".encode(), "SKILL.md", "folder").description == meant


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "must begin with"),
        (b"# Title", "must begin with"),
        (b"---\nname: a", "must begin with"),
        (b"---\nname: a\n---\n", "description is missing"),
        (b"---\nname: A b\ndescription: x\n---\n", "name is 1 to 64 lowercase"),
        (b"---\ndescription: " + b"x" * 2_000 + b"\n---\n", "more than 1024"),
        (b"---\ndescription: a\xe2\x80\xaeb\n---\n", "invisible characters"),
        (b"\xff", "not UTF-8"),
        (b"x" * 300_000, "larger than 256 KiB"),
    ],
)
def test_a_page_that_is_wrong_is_refused_with_a_sentence(content: bytes, says: str) -> None:
    with pytest.raises(DefinitionError, match=says) as wrong:
        skill_from_page(content, "SKILL.md", "folder")
    assert str(wrong.value).startswith("SKILL.md")


@pytest.mark.feature("F066")
@pytest.mark.parametrize(
    ("pin", "version"),
    [("1.2", "1.2.10"), ("1.2.9", "1.2.9"), ("1", "1.10"), ("2", None), ("2.0-rc1", "2.0-rc1"), ("1.1", None)],
)
def test_a_pin_means_the_very_version_or_the_newest_that_begins_with_it(pin: str, version: str | None) -> None:
    assert pinned_version(pin, ["1.2.9", "1.2.10", "1.10", "2.0-rc1"]) == version


def test_versions_are_compared_by_their_numbers() -> None:
    assert sorted(["1.10", "2.0", "1.9", "2.0-rc1", "1.9.1"], key=version_key) == [
        "1.9",
        "1.9.1",
        "1.10",
        "2.0-rc1",
        "2.0",
    ]
