"""Who was controller, as far as somebody looked."""

from collections import deque
from dataclasses import dataclass
from typing import Any

REMEMBERED = 50


@dataclass(slots=True)
class Reign:
    """`id` None: there was no controller. `since_ms`: when it was first seen so, `until_ms`: when another one was.

    `begun_s` is `since_ms` on the clock that never goes back.
    """

    id: int | None
    epoch: int | None
    since_ms: int
    begun_s: float
    until_ms: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "epoch": self.epoch, "since_ms": self.since_ms, "until_ms": self.until_ms}


class ControllerHistory:
    """The last changes of controllers. Fed by one look after the other."""

    def __init__(self) -> None:
        self._reigns: deque[Reign] = deque(maxlen=REMEMBERED)

    @property
    def current(self) -> Reign | None:
        return self._reigns[-1] if self._reigns else None

    def saw(self, controller: int | None, epoch: int | None, now_ms: int, now_s: float) -> bool:
        """Take what a look has seen; whether that is another controller, or the same one elected again."""
        last = self.current
        if last is not None and last.id == controller and (last.epoch == epoch or None in (last.epoch, epoch)):
            last.epoch = epoch if last.epoch is None else last.epoch
            return False
        if last is not None:
            last.until_ms = now_ms
        self._reigns.append(Reign(controller, epoch, now_ms, now_s))
        return True

    def as_json(self) -> list[dict[str, Any]]:
        """The newest first."""
        return [reign.as_json() for reign in reversed(self._reigns)]
