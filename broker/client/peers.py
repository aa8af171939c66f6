"""The controller's requests to brokers: a queue for each broker, and one request in flight (`controller.ports.Peers`).

A request is sent again until it is answered, or the broker is removed.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from logyard.broker import tasks
from logyard.broker.client.link import Link
from logyard.broker.client.peer_security import PLAIN, PeerSecurity
from logyard.broker.controller.ports import Answered
from logyard.broker.errors import CorruptData
from logyard.broker.model import BrokerInfo
from logyard.broker.replication.ports import LinkError

RETRY_S = 0.1

log = structlog.get_logger("logyard.peers")


@dataclass(slots=True)
class _Queued:
    api_key: int
    version: int
    fields: Mapping[str, Any]
    callback: Answered
    correlation_id: int | None


class _Sender:
    """One broker's queue, and the task that sends its requests."""

    def __init__(self, broker_id: int, link: Link) -> None:
        self._broker_id = broker_id
        self._link = link
        self._queue: deque[_Queued] = deque()
        self._wake = asyncio.Event()
        self._task = tasks.keep(f"controller to {broker_id}", self._run)

    def put(self, queued: _Queued) -> None:
        self._queue.append(queued)
        self._wake.set()

    def drop(self) -> None:
        """Stop; the callbacks of all queued requests get None."""
        self._task.cancel()
        self._link.close()
        dropped, self._queue = self._queue, deque()
        for queued in dropped:
            queued.callback(None)

    async def _run(self) -> None:
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            first = self._queue[0]
            try:
                answer = await self._link.request(
                    first.api_key, first.version, first.fields, correlation_id=first.correlation_id
                )
            except (LinkError, CorruptData) as error:
                log.info(
                    "cannot reach the broker, trying again", peer=self._broker_id, api=first.api_key, error=str(error)
                )
                self._link.disconnect("the request is sent again")
                await asyncio.sleep(RETRY_S)
                continue
            except ValueError as error:
                # The fields do not fit the schema: a bug, so do not send again.
                log.error("cannot encode the request", peer=self._broker_id, api=first.api_key, error=str(error))
                answer = None
            self._queue.popleft()
            try:
                first.callback(answer)
            except Exception:
                # The sender goes on with the next request.
                log.exception("cannot handle the broker's answer", peer=self._broker_id, api=first.api_key)


class ControllerPeers:
    """Senders by broker id. `listener` is the name of the listener that they use."""

    def __init__(
        self, listener: str, client_id: str, request_timeout_s: float = 30.0, security: PeerSecurity = PLAIN
    ) -> None:
        self._security = security
        self._listener = listener
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._senders: dict[int, _Sender] = {}

    def add_broker(self, info: BrokerInfo) -> None:
        self.remove_broker(info.id)
        endpoint = info.endpoint(self._listener)
        if endpoint is None:
            log.error("broker has no endpoint on the listener of controllers", peer=info.id, listener=self._listener)
            return
        link = Link(
            endpoint.host,
            endpoint.port,
            client_id=self._client_id,
            request_timeout_s=self._request_timeout_s,
            security=self._security,
        )
        self._senders[info.id] = _Sender(info.id, link)

    def remove_broker(self, broker_id: int) -> None:
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.drop()

    def send(
        self,
        broker_id: int,
        api_key: int,
        version: int,
        fields: Mapping[str, Any],
        callback: Answered,
        correlation_id: int | None = None,
    ) -> None:
        sender = self._senders.get(broker_id)
        if sender is None:
            callback(None)
        else:
            sender.put(_Queued(api_key, version, fields, callback, correlation_id))

    def close(self) -> None:
        for broker_id in list(self._senders):
            self.remove_broker(broker_id)
