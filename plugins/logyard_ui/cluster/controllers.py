"""Who was controller and when, as far as the page has read the cluster."""

from collections import deque
from dataclasses import dataclass
from typing import Any

REMEMBERED = 50


@dataclass(slots=True)
class ControllerTerm:
    """The time of one controller; `id` None: there was none.

    `since_ms`: when the page first read it, `until_ms`: when it first read another one, both in ms since 1970.
    `begun_s`: `since_ms` on the clock that never goes back.
    """

    id: int | None
    epoch: int | None
    since_ms: int
    begun_s: float
    until_ms: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "epoch": self.epoch, "since_ms": self.since_ms, "until_ms": self.until_ms}


class ControllerHistory:
    """The last terms of controllers, from one read after the other."""

    def __init__(self) -> None:
        self._terms: deque[ControllerTerm] = deque(maxlen=REMEMBERED)

    @property
    def current(self) -> ControllerTerm | None:
        return self._terms[-1] if self._terms else None

    def add(self, controller: int | None, epoch: int | None, now_ms: int, now_s: float) -> bool:
        """Add what was read; returns whether another controller, or the same one again, was elected."""
        last = self.current
        if last is not None and last.id == controller and (last.epoch == epoch or None in (last.epoch, epoch)):
            last.epoch = epoch if last.epoch is None else last.epoch
            return False
        if last is not None:
            last.until_ms = now_ms
        self._terms.append(ControllerTerm(controller, epoch, now_ms, now_s))
        return True

    def as_json(self) -> list[dict[str, Any]]:
        """The current term first."""
        return [term.as_json() for term in reversed(self._terms)]
