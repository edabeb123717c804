"""Addresses: what they are made of, and that no token can mean more than itself."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.utp.samples import a_while, tokens
from toolwire.protocol.subjects import BadSubject, Category, Component, Subject, TargetSubject, WrongVersion

HOSTILE = [
    "", ".", "a.b", "*", ">", "a*", "a b", "a\tb", "a\nb", "a\r\nPUB x", "a\0b", "é", "а", "a" * 65, "{x}", "$SYS",
    "a/b",
]  # fmt: skip


@pytest.mark.feature("F197")
@pytest.mark.feature("F199")
def test_a_tool_has_a_subject_with_version_project_and_channel() -> None:
    assert str(Subject.tool("acme", "public", "search", "web")) == "cg.v1r4.acme.public.cmd.tool.search.web"


@pytest.mark.feature("F198")
def test_a_built_in_tool_of_the_pmo_has_an_internal_subject() -> None:
    subject = Subject.pmo("acme", "public", "delegate_async")
    assert str(subject) == "cg.v1r4.acme.public.cmd.sys.pmo.internal.delegate_async"
    assert Subject.parse(str(subject)).pmo_tool == "delegate_async"


def test_wakeups_events_streams_and_reports_have_their_subjects() -> None:
    assert str(Subject.wakeup("acme", "public", "w1")) == "cg.v1r4.acme.public.cmd.agent.w1.wakeup"
    assert str(Subject.event("acme", "public", "ann", "step")) == "cg.v1r4.acme.public.evt.agent.ann.step"
    assert str(Subject.stream("acme", "public", "ann")) == "cg.v1r4.acme.public.str.agent.ann.chunk"
    assert Subject.parse(str(Subject.report("acme", "public"))).is_report
    assert Subject.parse("cg.v1r4.acme.public.cmd.agent.w1.wakeup").wakes == "w1"


@a_while
@given(tokens, tokens, st.sampled_from(Category), st.sampled_from(Component), st.lists(tokens, min_size=1, max_size=8))
def test_what_is_written_is_read(
    project: str, channel: str, category: Category, component: Component, path: list[str]
) -> None:
    subject = Subject(project, channel, category, component, tuple(path))
    assert Subject.parse(str(subject)) == subject


@pytest.mark.parametrize("token", HOSTILE)
def test_a_token_that_could_mean_more_than_itself_is_refused_in_every_place(token: str) -> None:
    makers: list[Callable[[], Subject]] = [
        lambda: Subject.tool(token, "public", "search"),
        lambda: Subject.tool("acme", token, "search"),
        lambda: Subject.tool("acme", "public", token),
        lambda: Subject.tool("acme", "public", "search", token),
        lambda: Subject.pmo("acme", "public", token),
        lambda: Subject.wakeup("acme", "public", token),
        lambda: Subject.event("acme", "public", token, "step"),
        lambda: Subject.stream("acme", "public", token),
        lambda: TargetSubject.parse("cg.v1r4.{project_id}.{channel_id}.cmd.tool.search").fill(token, "public"),
    ]
    for make in makers:
        with pytest.raises(BadSubject):
            make()


@a_while
@given(st.text(max_size=80))
def test_any_text_is_a_subject_or_refused(text: str) -> None:
    with suppress(BadSubject):
        assert str(Subject.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["cg.v1r4.acme.public.cmd.tool", "cg.v1r4.acme.public.cmd.tool.", "cg..acme.public.cmd.tool.x", "x" * 5000, 7, None,
     "CG.v1r4.acme.public.cmd.tool.x", "cg.v1r4.acme.public.cmd.device.x", "cg.v1r4.acme.public.do.tool.x",
     "cg.v1r4.acme.*.cmd.tool.x", "cg.v1r4.acme.public.cmd.tool.>", "cg.v1r4.acme.public.cmd.tool" + ".x" * 9,
     "cg.latest.acme.public.cmd.tool.x"],
)  # fmt: skip
def test_what_is_not_a_subject_is_refused(text: object) -> None:
    with pytest.raises(BadSubject):
        Subject.parse(text)


@pytest.mark.feature("F199")
def test_another_version_of_the_protocol_is_told_apart_from_a_broken_subject() -> None:
    with pytest.raises(WrongVersion, match="v2 is not understood here; send v1r4"):
        Subject.parse("cg.v2.acme.public.cmd.tool.search")
    assert Subject.parse("cg.v2.acme.public.cmd.tool.search", versions=frozenset({"v2"})).version == "v2"


@pytest.mark.feature("F197")
def test_a_registered_subject_is_filled_with_project_and_channel() -> None:
    target = TargetSubject.parse("cg.v1r4.{project_id}.{channel_id}.cmd.tool.search")
    assert str(target.fill("acme", "public")) == "cg.v1r4.acme.public.cmd.tool.search"
    assert target.filter == "cg.v1r4.*.*.cmd.tool.search"


def test_a_registered_subject_of_one_project_never_reaches_another() -> None:
    target = TargetSubject.parse("cg.v1r4.acme.{channel_id}.cmd.tool.search")
    assert str(target.fill("acme", "public")) == "cg.v1r4.acme.public.cmd.tool.search"
    with pytest.raises(BadSubject, match="another project"):
        target.fill("other", "public")
    with pytest.raises(BadSubject, match="another channel"):
        TargetSubject.parse("cg.v1r4.acme.private.cmd.tool.search").fill("acme", "public")


@pytest.mark.parametrize(
    "text",
    ["cg.v1r4.{channel_id}.{project_id}.cmd.tool.x", "cg.v1r4.{project_id}.{channel_id}.cmd.tool.{project_id}",
     "cg.v1r4.{project_id}.{channel_id}.evt.agent.x.step", "cg.v1r4.{project_id}.{channel_id}.cmd.agent.x.wakeup",
     "cg.v1r4.{project_id}x.{channel_id}.cmd.tool.x", "cg.v1r4.*.*.cmd.tool.x", "search", "", 7,
     "cg.v1r4.{project_id}.{channel_id}.cmd.sys.execution.report", "cg.v1r4.{project_id}.{channel_id}.cmd.sys.pmo.x"],
)  # fmt: skip
def test_a_registered_subject_with_marks_or_targets_out_of_place_is_refused(text: object) -> None:
    with pytest.raises(BadSubject):
        TargetSubject.parse(text)
