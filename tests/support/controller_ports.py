"""Stand-ins for what a controller needs of its broker: senders that keep what is sent, and numbers that are known.

`RecordingPeers(respond)` answers at once with what `respond(request)` returns; `sent` has every request in order.
`FixedChance()` always draws the lowest number and counts topic ids up from 1.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.controller.ports import Answered
from logyard.broker.model import BrokerInfo
from logyard.broker.protocol import codec
from logyard.broker.protocol.header import parse_request_header


@dataclass(slots=True)
class SentRequest:
    """What a RecordingPeers was given; the fields as the broker reads them."""

    broker_id: int
    api_key: int
    version: int
    fields: Mapping[str, Any]
    callback: Answered


@dataclass(slots=True)
class RecordingPeers:
    """Stands for Peers: keeps what is sent, and answers at once by `respond` where that is given.

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
        received = _as_received(api_key, version, fields)
        request = SentRequest(broker_id, api_key, version, received, callback)
        self.sent.append(request)
        response = self.respond(request) if self.respond is not None else None
        if response is not None:
            callback(response)


def _as_received(api_key: int, version: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    frame = codec.encode_request(api_key, version, 0, "", fields)
    body = parse_request_header(memoryview(frame)[4:]).body
    received: dict[str, Any] = codec.decode_request(api_key, version, body).as_dict()
    return received


class FixedChance:
    """Stands for Chance: always the lowest number, and topic ids counted up from 1."""

    def __init__(self) -> None:
        self._ids = 0

    def below(self, bound: int) -> int:
        return 0

    def topic_id(self) -> uuid.UUID:
        self._ids += 1
        return uuid.UUID(int=self._ids)
