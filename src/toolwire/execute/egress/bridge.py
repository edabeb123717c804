"""Runs inside a box: carries connections to 127.0.0.1:PORT over to a unix socket, then becomes COMMAND.

    python3 bridge.py SOCKET PORT COMMAND [ARGUMENT…]

One file, standard library only, for any Python since 3.8, and quick to start: every command in a box waits for it. It
listens before COMMAND starts, so that nothing else has to be waited for. One process and no threads, since both count
against the limits of the box. Without COMMAND it serves until it is ended.
"""

import os
import selectors
import socket
import sys

AT_ONCE = 64
PIECE = 65536
_LOOK_S = 1.0


class BridgeEnd:
    """One end of a connection: its socket, what is still to be written to it, and whether it has said all."""

    def __init__(self, plug: socket.socket) -> None:
        plug.setblocking(False)
        self.plug = plug
        self.unwritten = b""
        self.silent = False
        self.other: BridgeEnd = self

    def read(self) -> None:
        piece = self.plug.recv(PIECE)
        self.silent = not piece
        self.other.unwritten = piece
        self.other.write()

    def write(self) -> None:
        try:
            self.unwritten = self.unwritten[self.plug.send(self.unwritten) :] if self.unwritten else b""
        except BlockingIOError:
            return
        if not self.unwritten and self.other.silent:
            self.plug.shutdown(socket.SHUT_WR)

    def wants(self) -> int:
        """Nothing is read while the other end has not taken what came before."""
        reads = not self.silent and not self.other.unwritten
        return (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if self.unwritten else 0)


class Bridge:
    """Carries every connection that comes in."""

    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener, self._path = listener, path
        self._watched = selectors.DefaultSelector()
        self._open = 0
        listener.setblocking(False)
        self._watched.register(listener, selectors.EVENT_READ)

    def serve(self, parent: int) -> None:
        """Serve until the process that this one was started for is gone; forever if there is none."""
        while not parent or os.getppid() == parent:
            for key, events in self._watched.select(_LOOK_S):
                if key.data is None:
                    self._accept()
                elif key.data.plug.fileno() >= 0:  # not closed by an event before this one
                    self._move(key.data, events)

    def _accept(self) -> None:
        try:
            plug = self._listener.accept()[0]
        except OSError:
            return
        out = socket.socket(socket.AF_UNIX)
        try:
            out.connect(self._path)
        except OSError:
            plug.close()
            out.close()
            return
        inner, outer = BridgeEnd(plug), BridgeEnd(out)
        inner.other, outer.other = outer, inner
        self._open += 1
        self._watch(inner)
        self._watch(outer)
        if self._open == AT_ONCE:
            self._watched.unregister(self._listener)

    def _move(self, end: BridgeEnd, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                end.write()
            if events & selectors.EVENT_READ:
                end.read()
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        if end.silent and end.other.silent and not end.unwritten and not end.other.unwritten:
            self._close(end)
            return
        self._watch(end)
        self._watch(end.other)

    def _watch(self, end: BridgeEnd) -> None:
        wanted, known = end.wants(), end.plug in self._watched.get_map()
        if wanted and known:
            self._watched.modify(end.plug, wanted, end)
        elif wanted:
            self._watched.register(end.plug, wanted, end)
        elif known:
            self._watched.unregister(end.plug)

    def _close(self, end: BridgeEnd) -> None:
        for each in (end, end.other):
            if each.plug in self._watched.get_map():
                self._watched.unregister(each.plug)
            each.plug.close()
        if self._open == AT_ONCE:
            self._watched.register(self._listener, selectors.EVENT_READ)
        self._open -= 1


def main(arguments: "list[str]") -> None:
    path, port, command = arguments[0], int(arguments[1]), arguments[2:]
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    parent = os.getpid()
    if command and os.fork():
        listener.close()
        os.execvp(command[0], command)  # noqa: S606 (an argument list, given by the code that built the box)
    if command:
        for standard in (0, 1, 2):  # a reader of the command's output must not wait for us
            os.dup2(os.open(os.devnull, os.O_RDWR), standard)
    Bridge(listener, path).serve(parent if command else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
