"""The two checklists of the tool standard, each point answered from what was found."""

from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec import Struct

from toolwire.define.conformance import SkillFinding

State = Literal["yes", "no", "not seen"]


class Point(Struct, frozen=True):
    """One question of a checklist. `about` are the places of findings that answer it with no.

    A point that `needs_tests` is answered with yes only if some were run.
    """

    question: str
    about: tuple[str, ...]
    needs_tests: bool = False


class AnsweredPoint(Struct, frozen=True):
    """A point with its answer and the reasons for it."""

    question: str
    state: State
    reasons: tuple[str, ...] = ()


FOR_CREATORS = (
    Point("input_schema defines all parameters with types and descriptions", ("input_schema",)),
    Point("output_schema defines all output fields with types and descriptions", ("output_schema",)),
    Point("required lists name the mandatory fields", ("input_schema#required", "output_schema#required")),
    Point("examples show how to read output fields", ("examples",)),
    Point("errors have the standard form: status, error, tool", ("errors",), needs_tests=True),
    Point("successes have the standard form: status, output", ("tests",), needs_tests=True),
    Point("the output matches output_schema exactly", ("output",), needs_tests=True),
    Point("the name is lowercase with hyphens", ("name",)),
)
FOR_VALIDATORS = (
    Point("every property of input_schema has a type and a description", ("input_schema",)),
    Point("every property of output_schema has a type and a description", ("output_schema",)),
    Point("examples name fields that the output really has", ("examples",)),
    Point("a failure is reported in the standard form", ("errors",), needs_tests=True),
    Point("the program runs and takes its arguments", ("tests", "binary"), needs_tests=True),
    Point("permissions match what is really needed", ("permissions",), needs_tests=True),
)


def answer_checklist(
    points: Iterable[Point], findings: Sequence[SkillFinding], *, tested: bool
) -> tuple[AnsweredPoint, ...]:
    """A checklist with every point answered."""
    return tuple(_answer(point, findings, tested=tested) for point in points)


def _answer(point: Point, findings: Sequence[SkillFinding], *, tested: bool) -> AnsweredPoint:
    reasons = tuple(f"{each.where}: {each.message}" for each in findings if _part(each) in point.about)
    if reasons:
        return AnsweredPoint(point.question, "no", reasons)
    return AnsweredPoint(point.question, "not seen" if point.needs_tests and not tested else "yes")


def _part(finding: SkillFinding) -> str:
    """The part of a definition that a finding is about: `examples` for `examples[0].output`."""
    part = finding.where.partition("[")[0].partition("/")[0].partition(".")[0]
    return f"{part}#required" if "no required list" in finding.message else part
