"""Who waits for the end of a transaction, so that the next one of its id begins right behind it.

A client that has its answer to EndTxn asks for the next transaction at once, while the markers of the last one are
under way. Kafka answers CONCURRENT_TRANSACTIONS, and the client asks again after 20 to 100 ms, as often as it takes.
Here the request waits for the end, but not for longer than such a client would.
"""

import asyncio

from logyard.broker.event_loop import Timers

WAIT_S = 0.1


class Ends:
    """Waiting requests by transactional id."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    async def wait(self, transactional_id: str) -> None:
        """Return when `ended` is called for the id, or after WAIT_S."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        of_id = self._waiting.setdefault(transactional_id, [])
        of_id.append(waiting)
        late = self._timers.call_later(WAIT_S, lambda: _release(waiting))
        try:
            await waiting
        finally:
            late.cancel()
            of_id.remove(waiting)
            if not of_id and self._waiting.get(transactional_id) is of_id:
                del self._waiting[transactional_id]

    def ended(self, transactional_id: str) -> None:
        """The end of a transaction of this id is stored."""
        for waiting in self._waiting.get(transactional_id, ()):
            _release(waiting)


def _release(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
