"""What the controller needs besides ZooKeeper and time: senders to brokers and randomness."""

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from logyard.broker.model import BrokerInfo

Answered = Callable[[Any], None]
"""Called once with the decoded response, or with None when the broker is dropped before it answered."""


class Peers(Protocol):
    """One FIFO sender per broker, which sends again until it is answered or the broker is removed."""

    def add_broker(self, info: BrokerInfo) -> None:
        """Start a sender; a broker that is there already is replaced."""
        ...

    def remove_broker(self, broker_id: int) -> None:
        """Drop a sender and what it holds; every waiting callback gets None. Unknown ids are fine."""
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
        """Queue a request behind those already queued for that broker; a broker without a sender answers None.

        `correlation_id` goes into the request's header (None: any), for the broker's log to name it.
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
