"""A turn told as messages takes time in proportion to what was said."""

from collections import UserDict
from collections.abc import Iterator

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, ResultsMessage
from toolwire.protocol.outcomes import Status
from toolwire.record import story


class Counted(UserDict[str, ToolResult]):
    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def test_the_results_of_a_turn_are_not_gone_through_for_each_reply_where_a_call_was_detached() -> None:
    calls = [ToolCall("note", {}, f"call-{number}") for number in range(50)]
    results = Counted({call.id: ToolResult(call.id, "note", Status.SUCCESS, (Text("done"),)) for call in calls})
    told = story.events([Reply("", calls=(call,)) for call in calls], results, frozenset({"call-7"}))
    texts = [one.results[0].text for one in told if isinstance(one, ResultsMessage)]

    assert len(texts) == 50
    assert [place for place, text in enumerate(texts) if "runs on its own" in text] == [7]
    assert results.walks == 0
