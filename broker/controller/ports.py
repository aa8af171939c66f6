"""The controller's ports besides ZooKeeper and the clock: senders to brokers, and randomness."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from logyard.broker.model import BrokerInfo

Answered = Callable[[Any], None]
"""Called once with the decoded response, or with None if the broker was removed before it answered."""


class Peers(Protocol):
    """One FIFO sender per broker, which resends until the broker answers or is removed."""

    def add_broker(self, info: BrokerInfo) -> None:
        """Start a sender; an existing one for that broker is replaced."""
        ...

    def remove_broker(self, broker_id: int) -> None:
        """Drop a sender and its requests; every waiting callback gets None. An unknown id is no error."""
        ...

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        fields: Mapping[str, Any],
        callback: Answered,
        correlation_id: int | None = None,
    ) -> None:
        """Queue a request for that broker; without a sender the callback gets None.

        `correlation_id` goes into the request's header (None: any), so that the broker's log can name it.
        """
        ...


class Chance(Protocol):
    """Randomness as a port."""

    def below(self, bound: int) -> int:
        """Return a number from 0 up to but not including `bound` (at least 1)."""
        ...

    def topic_id(self) -> uuid.UUID:
        """Return a fresh random uuid."""
        ...
