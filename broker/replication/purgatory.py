"""Requests that cannot be answered yet (facts §15).

Rule 1: an operation completes exactly once: when its condition holds, or when its time is up.
Rule 2: try, watch under every key, try again: no event in between is missed.
Everything runs on one event loop; timers come from the `Timers` port, so there are no threads and no locks.
"""

from collections.abc import Hashable, Iterable

from logyard.broker.event_loop import TimerHandle, Timers


class Delayed:
    """One waiting operation. Subclasses define when it is ready and what answers it."""

    __slots__ = ("_keys", "_timer", "completed")

    def __init__(self) -> None:
        self.completed = False
        self._keys: tuple[Hashable, ...] = ()
        self._timer: TimerHandle | None = None

    def is_ready(self, key: Hashable | None) -> bool:
        """Whether to answer now. `key` is what changed, so only that has to be checked; None: check everything."""
        raise NotImplementedError

    def answer(self, *, expired: bool) -> None:
        """Send the answer. Called once."""
        raise NotImplementedError


class Purgatory:
    """Waiting operations by key, in the order in which they came."""

    __slots__ = ("_is_closed", "_timers", "_watched", "expirations", "waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._watched: dict[Hashable, dict[Delayed, None]] = {}
        self._is_closed = False
        self.waiting = 0
        self.expirations = 0

    def try_complete_else_watch(self, operation: Delayed, keys: Iterable[Hashable], timeout_ms: int) -> bool:
        """Answer now if the operation is ready (True), else keep it until a `check` of one of its keys or the timeout.

        A timeout of zero or less expires at once.
        """
        if operation.is_ready(None):
            self._complete(operation, expired=False)
            return True
        if timeout_ms <= 0 or self._is_closed:
            self.expirations += 1
            self._complete(operation, expired=True)
            return True
        operation._keys = tuple(keys)
        for key in operation._keys:
            self._watched.setdefault(key, {})[operation] = None
        self.waiting += 1
        # No second check is needed: since the try above nothing else can have run.
        operation._timer = self._timers.call_later(timeout_ms / 1000, lambda: self._expire(operation))
        return False

    def check(self, key: Hashable) -> int:
        """`key` changed: answer the operations that are ready now; returns how many."""
        if not self._watched:
            return 0
        watched = self._watched.get(key)
        if not watched:
            return 0
        completed = 0
        for operation in list(watched):
            if not operation.completed and operation.is_ready(key):
                self._complete(operation, expired=False)
                completed += 1
        return completed

    def has(self, key: Hashable) -> bool:
        """Whether any operation waits for `key`."""
        return key in self._watched

    def close(self) -> None:
        """Shutdown: all waiting operations, and all later ones, are answered as if their time were up."""
        self._is_closed = True
        for operation in [o for watched in self._watched.values() for o in watched]:
            self._expire(operation)

    def _expire(self, operation: Delayed) -> None:
        if not operation.completed:
            self.expirations += 1
            self._complete(operation, expired=True)

    def _complete(self, operation: Delayed, *, expired: bool) -> None:
        assert not operation.completed, "an operation completes once"
        operation.completed = True
        self._forget(operation)
        operation.answer(expired=expired)

    def _forget(self, operation: Delayed) -> None:
        if operation._timer is None:
            return
        operation._timer.cancel()
        operation._timer = None
        self.waiting -= 1
        for key in operation._keys:
            watched = self._watched.get(key)
            if watched is not None:
                watched.pop(operation, None)
                if not watched:
                    del self._watched[key]
