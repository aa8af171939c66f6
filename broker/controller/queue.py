"""The controller's queue: events in order, each with its id and the request that waits for its answer.

Rule 1: every waiting request is answered, whatever happens to its event: at the latest when the event is dropped, with
NOT_CONTROLLER (ControlledShutdown: STALE_CONTROLLER_EPOCH, as in Kafka).
Rule 2: a scheduled event is queued when it is due, unless the queue was emptied before. One that is scheduled `once`
        takes the place of an equal one that waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from logyard.broker.controller.events import ControlledShutdown, Event
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.event_loop import Pending, TimerHandle


@dataclass(slots=True, eq=False)
class Envelope:
    """A queued event: its id, the id of the event that caused it (0: none), and the answer that is waited for."""

    id: int
    cause: int
    event: Event
    answer: Pending[Any] | None = None

    def reply(self, result: Any) -> None:
        """Answer the waiting request, unless it was answered before."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(result)

    def refuse(self, why: ApiError) -> None:
        """Answer the waiting request with an error, unless it was answered before."""
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(why)


class EventQueue:
    """The events, by the rules at the head of this file. `wake()` is called when one is put; `call_later` is the event
    loop's."""

    def __init__(
        self, wake: Callable[[], object], call_later: Callable[[float, Callable[[], None]], TimerHandle]
    ) -> None:
        self._wake = wake
        self._call_later = call_later
        self._waiting: deque[Envelope] = deque()
        self._timers: dict[int, TimerHandle] = {}
        self._once: dict[Event, int] = {}
        self._last_id = 0
        self.current: Envelope | None = None
        """The event that is being handled."""

    def __len__(self) -> int:
        """The number of waiting events; the one being handled counts too."""
        return len(self._waiting) + (self.current is not None)

    @property
    def is_empty(self) -> bool:
        """Whether there is no event to take."""
        return not self._waiting

    def put(self, event: Event, *, cause: int = 0, answer: Pending[Any] | None = None) -> None:
        """Queue an event behind all others."""
        self._last_id += 1
        self._waiting.append(Envelope(self._last_id, cause, event, answer))
        self._wake()

    def put_later(self, delay_s: float, event: Event, *, cause: int, is_wanted: Callable[[], bool]) -> int:
        """Queue an event after `delay_s` seconds, if it is still wanted then. Returns the timer's number."""
        self._last_id += 1
        key = self._last_id

        def due() -> None:
            self._timers.pop(key, None)
            if is_wanted():
                self.put(event, cause=cause)

        self._timers[key] = self._call_later(delay_s, due)
        return key

    def put_once(self, delay_s: float, event: Event, *, cause: int, is_wanted: Callable[[], bool]) -> None:
        """As `put_later`, in place of an equal event that waits for its time."""
        before = self._timers.pop(self._once.pop(event, 0), None)
        if before is not None:
            before.cancel()

        def is_last() -> bool:
            del self._once[event]
            return is_wanted()

        self._once[event] = self.put_later(delay_s, event, cause=cause, is_wanted=is_last)

    def take(self) -> Envelope:
        """Return the oldest event, which is `current` until `finish`."""
        self.current = self._waiting.popleft()
        return self.current

    def finish(self) -> None:
        """End the current event; if its answer is still waited for, refuse it."""
        if self.current is not None:
            self.current.refuse(not_controller(self.current.event))
        self.current = None

    def drop_everything(self) -> None:
        """Empty the queue, refuse the waiting requests, and forget scheduled events."""
        dropped = [*self._waiting, *([self.current] if self.current is not None else [])]
        self._waiting.clear()
        for envelope in dropped:
            envelope.refuse(not_controller(envelope.event))
        self.forget_scheduled()

    def forget_scheduled(self) -> None:
        """Forget the scheduled events."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._once.clear()


def not_controller(event: Event) -> ApiError:
    """Return the error for a request to a broker that is not controller."""
    stale = isinstance(event, ControlledShutdown)
    code = ErrorCode.STALE_CONTROLLER_EPOCH if stale else ErrorCode.NOT_CONTROLLER
    return ApiError(code, "This broker is not the controller.")
