"""The report on a skill: what keeps its tools from conforming, with reasons, and the standard's two checklists."""

from pathlib import Path

import pytest

from tests.skills.making import GREET, GREET_TOML, greeter, one_tool, program, trusted, write
from toolwire.define.checklist import FOR_CREATORS, FOR_VALIDATORS, answer_checklist
from toolwire.define.conformance import SkillFinding
from toolwire.define.skill_conformance import report_skill_tool
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.skill_folders import SkillCopies
from toolwire.toolbox.skills.trials import SkillTrial


def report(folder: Path) -> list[SkillFinding]:
    [entry] = trusted(folder).skill.tools
    return report_skill_tool(entry)


async def tried(folder: Path, shelf: SkillCopies) -> list[SkillFinding]:
    found = trusted(folder)
    [entry] = found.skill.tools
    return await SkillTrial(found, entry, local_sandbox(), shelf).findings()


def changed(folder: Path, old: str, new: str) -> Path:
    toml = greeter(folder) / "skill.toml"
    assert old in toml.read_text()
    toml.write_text(toml.read_text().replace(old, new))
    return folder


async def test_a_well_made_skill_has_nothing_to_report(skills: Path, shelf: SkillCopies) -> None:
    folder = greeter(skills / "greeter")
    assert report(folder) == []
    assert await tried(folder, shelf) == []


@pytest.mark.parametrize(
    ("old", "new", "level", "where", "words"),
    [
        pytest.param('name = "greet"', 'name = "greetAll"', "warning", "name", "write 'greet-all'",
                     marks=pytest.mark.feature("F047")),
        pytest.param('name = "greet"', 'name = "greet_all"', "warning", "name", "write 'greet-all'",
                     marks=pytest.mark.feature("F047")),
        ('{ type = "string", description = "Who is greeted." }', '{ description = "Who." }', "error",
         "input_schema/properties/name", "has no type"),
        (', description = "Who is greeted."', "", "error", "input_schema/properties/name", "has no description"),
        (', description = "What to say."', "", "error", "output_schema/properties/greeting", "has no description"),
        pytest.param("output.greeting is", "output.message is", "error", "examples[0].explanation",
                     "names output.message; the output has: greeting", marks=pytest.mark.feature("F046")),
        pytest.param("output.greeting is", "It is", "warning", "examples[0].explanation", "names no field",
                     marks=pytest.mark.feature("F046")),
        ('output = { greeting = "Hello, Ada!" }\n[[tools.tests]]', 'output = { greeting = 5 }\n[[tools.tests]]',
         "error", "examples[0].output", "expected a string"),
        ('input = { name = "Ada" }\noutput', 'input = { who = "A" }\noutput', "error", "examples[0]", "missing 'name'"),
        ('name = "nobody"\ninput = { name = "nobody" }\nexit_code = 1', 'input = { name = "Bob" }', "warning", "errors",
         "no test shows how it fails"),
        ('name = "greet"\n', 'name = "greet"\npermissions = ["file_write"]\neffect = "pure"\n', "error", "permissions",
         "says that it changes nothing"),
        ('name = "greet"\n', 'name = "greet"\npermissions = ["file_write", "file_read"]\n', "warning", "permissions",
         "file_read can be left out"),
        pytest.param('name = "greet"\n', 'name = "greet"\npermissions = ["git"]\n', "warning", "permissions",
                     "git gives a program nothing", marks=pytest.mark.feature("F120")),
        ('name = "greet"\n', 'name = "greet"\nsandboxing = "none"\n', "warning", "sandboxing", "is ignored"),
    ],
)  # fmt: skip
def test_each_shortcoming_of_a_definition_is_reported_where_it_is(
    skills: Path, old: str, new: str, level: str, where: str, words: str
) -> None:
    found = report(changed(skills / "greeter", old, new))
    assert (level, where) in [(each.level, each.where) for each in found if words in each.message]


def test_what_three_lines_leave_open_is_reported(skills: Path) -> None:
    found = {(each.level, each.where) for each in report(one_tool(skills / "bare", "true"))}
    assert found == {("error", "output_schema"), ("warning", "examples"), ("warning", "tests")}


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        ("Hello", "Hallo", "tests[somebody]", "expected the output"),
        ('"greeting":', '"gretting":', "output", "not as it promises"),
        ('sys.exit("there is nobody to greet")', "sys.exit(1)", "errors", "without a word on its standard error"),
        ('sys.exit("there is nobody to greet")', "pass", "tests[nobody]", "expected exit code 1, got 0"),
        ("import json", "import jsno", "tests[somebody]", "No module named 'jsno'"),
    ],
)
async def test_tests_that_do_not_come_out_as_their_author_says_are_reported(
    skills: Path, shelf: SkillCopies, old: str, new: str, where: str, words: str
) -> None:
    folder = greeter(skills / "greeter", text=GREET.replace(old, new))
    assert where in [each.where for each in await tried(folder, shelf) if words in each.message]


async def test_a_test_with_arguments_that_no_call_could_have_is_reported(skills: Path, shelf: SkillCopies) -> None:
    folder = changed(skills / "greeter", 'name = "somebody"\ninput = { name = "Ada" }', 'input = { who = "Ada" }')
    assert [each.where for each in await tried(folder, shelf)] == ["tests[test 1].input"]


COPY_TOML = """
[[tools]]
name = "copy"
binary = "run"
description = "Copy a file to another name."
permissions = PERMISSIONS
[[tools.tests]]
files = { "a.txt" = "words" }
writes = { "b.txt" = "words" }
"""


@pytest.mark.feature("F120")
@pytest.mark.parametrize(
    ("script", "permissions", "overasked"),
    [
        ("cp a.txt b.txt", '["file_write"]', []),
        ("test -f a.txt", '["file_read"]', []),
        ("true", '["file_read"]', ["file_read"]),
        ("test -f a.txt", '["file_write"]', ["file_write"]),
        ("true", '["network"]', ["network"]),
    ],
)
async def test_a_permission_without_which_all_tests_pass_is_one_too_many(
    skills: Path, shelf: SkillCopies, script: str, permissions: str, overasked: list[str]
) -> None:
    toml = COPY_TOML.replace("PERMISSIONS", permissions)
    write(skills / "copy" / "skill.toml", toml if "cp" in script else toml.partition("writes =")[0])
    program(skills / "copy" / "run", f"#!/bin/sh\n{script}\n")

    found = await tried(skills / "copy", shelf)

    assert [each.message.split()[2].rstrip(",") for each in found if each.where == "permissions"] == overasked


async def test_a_file_that_was_not_written_is_reported(skills: Path, shelf: SkillCopies) -> None:
    write(skills / "copy" / "skill.toml", COPY_TOML.replace("PERMISSIONS", '["file_write"]'))
    program(skills / "copy" / "run", "#!/bin/sh\nln -s /etc/passwd b.txt\n")
    [found] = await tried(skills / "copy", shelf)
    assert "expected b.txt to hold 'words', got None" in found.message


@pytest.mark.feature("F049")
@pytest.mark.feature("F050")
async def test_both_checklists_are_answered_with_reasons(skills: Path, shelf: SkillCopies) -> None:
    good = greeter(skills / "good")
    findings = [*report(good), *await tried(good, shelf)]
    for points in (FOR_CREATORS, FOR_VALIDATORS):
        assert {each.state for each in answer_checklist(points, findings, tested=True)} == {"yes"}

    toml = GREET_TOML.replace("VERSION", "1").replace('name = "greet"', 'name = "Greet"')
    write(skills / "bad" / "skill.toml", toml.replace("output.greeting", "output.words"))
    program(skills / "bad" / "bin" / "greet", GREET.replace('"greeting":', '"gretting":'))
    findings = [*report(skills / "bad"), *await tried(skills / "bad", shelf)]

    creators = {each.question: each for each in answer_checklist(FOR_CREATORS, findings, tested=True)}
    assert [question for question, each in creators.items() if each.state == "no"] == [
        "examples show how to read output fields",
        "the output matches output_schema exactly",
        "the name is lowercase with hyphens",
    ]
    assert "write 'greet'" in creators["the name is lowercase with hyphens"].reasons[0]
    validators = answer_checklist(FOR_VALIDATORS, findings, tested=True)
    assert [each.question for each in validators if each.state == "no"] == [
        "examples name fields that the output really has"
    ]


def test_what_nobody_has_tried_is_not_answered_with_yes(skills: Path) -> None:
    points = answer_checklist(FOR_CREATORS, report(greeter(skills / "greeter")), tested=False)
    assert [each.question for each in points if each.state == "not seen"] == [
        "errors have the standard form: status, error, tool",
        "successes have the standard form: status, output",
        "the output matches output_schema exactly",
    ]
