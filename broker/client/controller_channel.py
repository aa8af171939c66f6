"""What else a broker asks of the controller: blocks of producer ids, and leave to shut down."""

import asyncio
from collections.abc import Callable

import structlog

from logyard.broker.client.to_controller import ToController, known
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.replication.ports import LinkError

ALLOCATE_PRODUCER_IDS = 67
CONTROLLED_SHUTDOWN = 7
CONTROLLED_SHUTDOWN_VERSION = 3
# The next block is asked for when the last tenth of the present one is begun (facts §21b).
PREFETCH_AT_LAST = 10
RETRY_S = 0.2

log = structlog.get_logger("logyard.controller-channel")


class ControllerChannel:
    """Producer ids out of blocks that the controller hands out, and controlled shutdown."""

    def __init__(self, controller: ToController, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._ids = range(0)
        self._next_ids: range | None = None
        self._fetch_at = 0
        self._fetching: asyncio.Task[None] | None = None

    async def next_producer_id(self, timeout_s: float = 5.0) -> int:
        """Return an id nobody else has; raises ApiError(COORDINATOR_LOAD_IN_PROGRESS) while none can be had."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not self._ids:
            if self._next_ids is not None:
                self._ids, self._next_ids = self._next_ids, None
                self._fetch_at = self._ids.stop - max(1, len(self._ids) // PREFETCH_AT_LAST)
                continue
            fetching = self._fetch()
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait([fetching], timeout=max(left, 0))
            if not fetching.done():
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids from the controller yet")
        producer_id = self._ids[0]
        self._ids = self._ids[1:]
        if producer_id >= self._fetch_at and self._next_ids is None:
            self._fetch()
        return producer_id

    def _fetch(self) -> "asyncio.Task[None]":
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._fetch_block(), name="producer ids")
        return self._fetching

    async def _fetch_block(self) -> None:
        while self._next_ids is None:
            fields = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()}
            try:
                answer = await self._controller.request(ALLOCATE_PRODUCER_IDS, 0, fields)
            except (LinkError, CorruptData) as error:
                log.info("no producer ids yet, asking again", error=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            code = known(answer.error_code)
            if code is ErrorCode.NONE and answer.producer_id_len > 0:
                start = answer.producer_id_start
                self._next_ids = range(start, start + answer.producer_id_len)
                return
            log.info("no producer ids yet, asking again", error=code.name)
            if code is ErrorCode.NOT_CONTROLLER:
                self._controller.close()
            await asyncio.sleep(RETRY_S)

    async def controlled_shutdown(self, tries: int, backoff_ms: int) -> bool:
        """Ask the controller to move leadership off this broker; False where it could not be done (facts §8)."""
        for left in reversed(range(tries)):
            fields = {"broker_id": self._broker_id, "broker_epoch": self._broker_epoch()}
            try:
                answer = await self._controller.request(CONTROLLED_SHUTDOWN, CONTROLLED_SHUTDOWN_VERSION, fields)
                code, remaining = known(answer.error_code), len(answer.remaining_partitions)
            except (LinkError, CorruptData) as error:
                code, remaining = ErrorCode.NETWORK_EXCEPTION, -1
                log.info("controlled shutdown: the controller was not reached", error=str(error))
            if code is ErrorCode.NONE and remaining == 0:
                return True
            log.info("controlled shutdown: not yet", error=code.name, still_led=remaining, tries_left=left)
            self._controller.close()
            if left:
                await asyncio.sleep(backoff_ms / 1000)
        return False

    def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
