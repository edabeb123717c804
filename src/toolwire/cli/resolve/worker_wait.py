"""What a person is told of calls that wait for a worker."""

import shlex

from toolwire.assemble.project import ProjectFolder
from toolwire.cli.resolve.resuming import project_words
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import one_line
from toolwire.protocol.events import NO_WORKER_YET, CallProgress, CallStarted, Event

_LONGEST_NAME = 80


class WorkerWait:
    """Says of each call that no worker takes for some seconds what it waits for, and how to start that."""

    def __init__(self, screen: Screen, place: ProjectFolder, home: str | None) -> None:
        self._screen = screen
        self._place = place
        self._home = home
        self._names: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case CallStarted(call):
                self._names[call.id] = call.name
            case CallProgress(call_id, message) if message == NO_WORKER_YET and call_id in self._names:
                tool = self._names[call_id]
                self._screen.tell(f"· {one_line(tool, _LONGEST_NAME)}: {message}; {self._advice(tool)}", "yellow")

    def _advice(self, tool: str) -> str:
        for name, one in self._place.settings.services.items():
            if one.via == "bus" and tool in one.tools:
                words = project_words(self._place.name, self._home)
                return f"start one with: toolwire worker {shlex.quote(name)}{words}"
        return "start the service that runs it"
