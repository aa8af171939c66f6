"""What the controller needs besides ZooKeeper and time: senders to brokers and randomness, each with its twin."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class SentRequest:
    """What a RecordingPeers was given."""

    broker_id: int
    api_key: int
    version: int
    fields: Mapping[str, Any]
    callback: Answered


@dataclass(slots=True)
class RecordingPeers:
    """The twin of Peers: keeps what is sent, and answers at once by `respond` where that is given.

    `respond(request)` returns the decoded response, or None to leave the request unanswered.
    """

    respond: Callable[[SentRequest], Any] | None = None
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    sent: list[SentRequest] = field(default_factory=list)

    def add_broker(self, info: BrokerInfo) -> None:
        self.brokers[info.id] = info

    def remove_broker(self, broker_id: int) -> None:
        self.brokers.pop(broker_id, None)

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        fields: Mapping[str, Any],
        callback: Answered,
        correlation_id: int | None = None,
    ) -> None:
        if broker_id not in self.brokers:
            callback(None)
            return
        request = SentRequest(broker_id, api_key, version, fields, callback)
        self.sent.append(request)
        response = self.respond(request) if self.respond is not None else None
        if response is not None:
            callback(response)


class FixedChance:
    """The twin of Chance: always the lowest number, and topic ids counted up from 1."""

    def __init__(self) -> None:
        self._ids = 0

    def below(self, bound: int) -> int:
        return 0

    def topic_id(self) -> uuid.UUID:
        self._ids += 1
        return uuid.UUID(int=self._ids)
