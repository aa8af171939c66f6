"""Kills the Python process that runs into a named point: tests put this folder on the PYTHONPATH of what they start.

`LOGYARD_FAILPOINT` is JSON: `at` (request | upload | answer | rename), `match` (a regular expression for
"METHOD /path", or for the new path of a rename), `count` (which match, 1 the first), `do` (kill | kill-session |
pause) and `mark`, a file that is made when the point is reached; a point whose mark is there is passed. `pause` goes
on when `<mark>.go` is there. `LOGYARD_HIDE_DISK=1` hides leases' directories, as if the brokers ran elsewhere.
"""

import builtins
import http.client
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any


class Failpoint:
    def __init__(self, at: str, match: str, mark: str, count: int = 1, do: str = "kill") -> None:
        self.at, self._pattern, self._mark, self._left, self._do = at, re.compile(match), mark, count, do

    def meets(self, at: str, what: str) -> bool:
        """Count a match; True at the one that was asked for."""
        if at != self.at or not self._pattern.search(what):
            return False
        self._left -= 1
        return self._left == 0

    def strike(self) -> None:
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self._do == "pause":
            while not os.path.exists(f"{self._mark}.go"):
                time.sleep(0.05)
            return
        if self._do == "kill-session":
            for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
                if pid != os.getpid() and _session_of(pid) == os.getsid(0):
                    os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return -1


def watch_http(point: Failpoint) -> None:
    request, getresponse = http.client.HTTPConnection.request, http.client.HTTPConnection.getresponse

    def watched_request(self: Any, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> None:
        self.failpoint_what = what = f"{method} {url}"
        if point.meets("request", what):
            point.strike()
        if point.meets("upload", what):
            body = half_of(body, int(headers["Content-Length"]), point.strike)
        request(self, method, url, body, headers or {}, **more)

    def watched_answer(self: Any) -> Any:
        answer = getresponse(self)
        if point.meets("answer", getattr(self, "failpoint_what", "")):
            answer.peek(1)
            point.strike()
        return answer

    http.client.HTTPConnection.request = watched_request  # type: ignore[method-assign]  # that is the point
    http.client.HTTPConnection.getresponse = watched_answer  # type: ignore[method-assign]  # likewise


def half_of(pieces: Any, size: int, strike: Callable[[], None]) -> Iterator[bytes]:
    """Yield half the bytes, strike, yield the rest."""
    data = b"".join(pieces)
    yield data[: size // 2]
    time.sleep(0.2)
    strike()
    yield data[size // 2 :]


def watch_renames(point: Failpoint) -> None:
    rename = os.rename

    def watched(source: Any, target: Any, **more: Any) -> None:
        if point.meets("rename", str(target)):
            point.strike()
        rename(source, target, **more)

    setattr(os, "rename", watched)  # noqa: B010 (an assignment would have to have all of its types)


def hide_lease_directories() -> None:
    opened = builtins.open

    def hiding(file: Any, *given: Any, **named: Any) -> Any:
        if str(file).endswith("/lease.json"):
            raise FileNotFoundError(file)
        return opened(file, *given, **named)

    builtins.open = hiding


if os.environ.get("LOGYARD_FAILPOINT"):
    wanted = Failpoint(**json.loads(os.environ["LOGYARD_FAILPOINT"]))
    watch_http(wanted)
    watch_renames(wanted)
if os.environ.get("LOGYARD_HIDE_DISK"):
    hide_lease_directories()
