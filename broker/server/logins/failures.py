"""Failed log-ins, by address and user: whoever guesses passwords is slowed, and named in the log.

Rule 1: nobody is locked out. From the 10th failure of an address and user within a minute on, the next log-ins of the
        two wait before they are looked at, longer with each failure, 5 s at most.
Rule 2: the first failures of a minute have a line each in the log; then every doubling has one.
Rule 3: memory is bounded: of more than ENTRIES_MAX the oldest entry is dropped. Names are cut.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass

WINDOW_S = 60.0
FREE = 10
WAIT_S = 0.05
WAIT_MAX_S = 5.0
ENTRIES_MAX = 4096
NAME_MAX = 128


@dataclass(slots=True)
class _Failures:
    count: int
    since: float


@dataclass(slots=True)
class LoginCounters:
    """What the log-ins of all listeners count, since the broker has started."""

    succeeded: int = 0
    refused: int = 0
    renewed: int = 0
    expired: int = 0

    def gauges(self) -> dict[str, int]:
        """Return the counts by the name of their metric."""
        return {f"logins_{name}": count for name, count in asdict(self).items()}


class LoginFailures:
    """See the head of this file. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._found: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def wait_s(self, address: str, user: str) -> float:
        """Return how long a log-in of this address and user has to wait before it is looked at, in seconds."""
        found = self._current(address, user)
        if found is None or found.count < FREE:
            return 0.0
        return min(WAIT_MAX_S, WAIT_S * (found.count - FREE + 1))

    def failed(self, address: str, user: str) -> int | None:
        """Count a failure. Return the count of this minute if it should be logged, else None."""
        found = self._current(address, user)
        if found is None:
            found = self._found[address, user[:NAME_MAX]] = _Failures(0, self._monotonic())
            if len(self._found) > ENTRIES_MAX:
                self._found.popitem(last=False)
        found.count += 1
        return found.count if found.count <= FREE or found.count & (found.count - 1) == 0 else None

    def _current(self, address: str, user: str) -> _Failures | None:
        key = address, user[:NAME_MAX]
        found = self._found.get(key)
        if found is not None and self._monotonic() - found.since >= WINDOW_S:
            del self._found[key]
            return None
        return found
