"""The conformance report: remarks on each tool, and the checklists for creators and validators."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from rich.text import Text

from toolwire.assemble.skills import ProjectSkills
from toolwire.cli.terminal.json_output import plain
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean
from toolwire.define.checklist import FOR_CREATORS, FOR_VALIDATORS, AnsweredPoint, answer_checklist
from toolwire.define.conformance import SkillFinding, report
from toolwire.define.skill_conformance import report_skill_tool
from toolwire.errors import ToolFailure
from toolwire.execute.skill_folders import SkillCopies
from toolwire.protocol.skills import SkillTool
from toolwire.protocol.tools import Tool
from toolwire.toolbox.skills.catalog import FoundSkill
from toolwire.toolbox.skills.trials import SkillTrial

_MARKS = {"yes": ("✓ ", "green"), "no": ("✗ ", "red"), "not seen": ("? ", "yellow")}


class Report(Struct, frozen=True):
    """What was found about one tool, and whether its tests were run."""

    findings: list[SkillFinding]
    tested: bool = False

    @property
    def failed(self) -> bool:
        return any(each.level == "error" for each in self.findings)

    @property
    def creators(self) -> tuple[AnsweredPoint, ...]:
        return answer_checklist(FOR_CREATORS, self.findings, tested=self.tested)

    @property
    def validators(self) -> tuple[AnsweredPoint, ...]:
        return answer_checklist(FOR_VALIDATORS, self.findings, tested=self.tested)


def report_on(tool: Tool) -> Report:
    """The report on a tool that does not belong to a skill."""
    return Report(report(tool))


def report_on_skill(found: FoundSkill, skills: ProjectSkills) -> dict[str, Report]:
    """The reports on all tools of a skill. Its tests are run only if it is trusted."""
    return {_title(entry): _tried(found, entry, skills) for entry in found.skill.tools}


def _title(entry: SkillTool) -> str:
    return f"{entry.tool.name}@{entry.tool.version}"


def _tried(found: FoundSkill, entry: SkillTool, skills: ProjectSkills) -> Report:
    findings = report_skill_tool(entry)
    if not entry.tests:
        return Report(findings)
    if not found.trusted:
        folder = shlex.quote(str(found.folder.path))
        advice = f"not run, since the skill is not trusted; look at it, then: toolwire trust {folder}"
        return Report([*findings, SkillFinding("warning", "tests", advice)])
    try:
        tried = asyncio.run(SkillTrial(found, entry, skills.sandbox(), SkillCopies(), skills.network).findings())
    except ToolFailure as cannot:
        return Report([SkillFinding("error", "tests", f"cannot be run: {cannot}"), *findings])
    return Report(sorted([*findings, *tried], key=lambda finding: finding.level), tested=True)


def show_reports(screen: Screen, reports: Mapping[str, Report], *, checklist: bool) -> None:
    for name, each in reports.items():
        _show_findings(screen, name, each.findings)
        if checklist:
            _show_points(screen, "for creators", each.creators)
            _show_points(screen, "for validators", each.validators)


def reports_object(reports: Mapping[str, Report], *, checklist: bool) -> dict[str, Any]:
    if not checklist:
        return {name: plain(each.findings) for name, each in reports.items()}
    return {
        name: {"findings": plain(each.findings), "creators": plain(each.creators), "validators": plain(each.validators)}
        for name, each in reports.items()
    }


def _show_findings(screen: Screen, name: str, found: Sequence[SkillFinding]) -> None:
    if not found:
        screen.out.print(Text.assemble(("✓ ", "green"), clean(name)))
    for each in found:
        mark, style = ("✗ ", "red") if each.level == "error" else ("! ", "yellow")
        where = f" {each.where}" if each.where else ""
        screen.out.print(Text.assemble((mark, style), clean(f"{name}{where}: {each.message}")), soft_wrap=True)


def _show_points(screen: Screen, title: str, points: Sequence[AnsweredPoint]) -> None:
    screen.out.print(Text(f"  {title}", "bold"))
    for point in points:
        screen.out.print(Text.assemble("    ", _MARKS[point.state], clean(point.question)), soft_wrap=True)
        for reason in point.reasons:
            screen.out.print(Text(clean(f"        {reason}"), "dim"), soft_wrap=True)
