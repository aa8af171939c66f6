"""What happened, as a digest that two runs of one seed must share, and as the last lines for a person to read."""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, MutableMapping
from typing import Any, NoReturn

import structlog

from tests.simulation.process import PROCESS

LINES_KEPT = 4000
NOTED_MAX = 1000
# What the broker says of its own mistakes: no fault that the simulator makes is an excuse for one of these.
_SEVERE = ("exception", "critical")


class Trace:
    """`note` adds to the digest; `say` only to the lines. `counts` is the run's coverage."""

    def __init__(self, show: bool = False) -> None:
        self.now: Callable[[], float] = lambda: 0.0
        self.counts: Counter[str] = Counter()
        self.mistakes: list[str] = []
        self.over = False
        # Told of every log line: who says it, what, and with which values.
        self.listeners: list[Callable[[str, str, MutableMapping[str, Any]], None]] = []
        self.lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._noted: list[bytes] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self._show = show

    def note(self, text: str, data: bytes = b"") -> None:
        noted = self._noted
        noted.append(f"{self.now():.9f} {text}\n".encode())
        noted.append(data)
        if len(noted) > NOTED_MAX:
            self._digest_noted()

    def _digest_noted(self) -> None:
        self._digest.update(b"".join(self._noted))
        self._noted.clear()

    def say(self, text: str) -> None:
        line = f"{self.now():10.4f} {text}"
        self.lines.append(line)
        if self._show:
            print(line, flush=True)

    def event(self, text: str) -> None:
        """Something that belongs to both."""
        self.note(text)
        self.say(text)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def mistake(self, text: str) -> None:
        if self.over:
            return
        self.say(f"MISTAKE {text}")
        self.mistakes.append(text)

    @property
    def digest(self) -> str:
        self._digest_noted()
        return self._digest.hexdigest()

    # structlog's way here

    def capture_logs(self) -> None:
        """Take the place of the broker's log output until `structlog.reset_defaults`."""
        structlog.configure(
            processors=[structlog.processors.format_exc_info, self._take],
            wrapper_class=structlog.make_filtering_bound_logger(0),
            cache_logger_on_first_use=False,
        )

    def _take(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> NoReturn:
        process = PROCESS.get()
        who = process.name if process is not None else "-"
        what, failure = str(event.pop("event")), event.pop("exception", None)
        rest = " ".join(f"{key}={value}" for key, value in event.items())
        self.count(f"log: {what}")
        for listener in self.listeners:
            listener(who, what, event)
        self.event(f"[{who}] {method} {what} {rest}")
        if failure is not None and (process is None or process.alive):  # the dying see strange things
            self.mistake(f"[{who}] {what} {rest}\n{failure}")
        raise structlog.DropEvent
